package etcdlock

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tierlock/tierlock/internal/contention"
	"github.com/tierlock/tierlock/internal/notice"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/mutexbool"
)

// A contender is one key in the queue for a lock, and the grant when it is first. It is
// enrolled in its session from before the key is created until it is given up.
type contender struct {
	claim   *claim
	session *session
	name    string         // a uuid; see [names]
	key     string         // <path>/<name>
	wake    mutexbool.Bool // look again

	// Set by the attempt, before anybody else sees them.
	token   int64 // create revision of the key, 0 as long as none is known to exist
	unclear bool  // a transaction that creates the key was not answered

	doomed bool // a requeue that deletes the key was not answered; set by that, before it looks further

	loss   notice.Loss
	life   context.Context // ends when the lock, or the place in the queue, is lost
	end    context.CancelCauseFunc
	tenure context.Context // ends with life, and when it is given up
	quit   context.CancelCauseFunc
	gone   atomic.Bool // the key is known not to be there any more

	contested atomic.Pointer[contention.Signal]
	held      bool      // both guarded by the queue, once that is joined
	granted   time.Time // valid when held
	revoked   mutexbool.Bool

	shared  atomic.Bool // it reads, or a request is sent that may make it read
	opening sync.Mutex  // guards the field below; one Share at a time is at it, for as long as that takes
	opened  bool        // by Share

	mu    sync.Mutex // guards the fields below; before that of the queue
	queue *queue     // nil until it is joined
	left  bool       // and not to be joined any more
	later *time.Timer

	pending  atomic.Int32 // guarded writes that may still take effect
	spent    atomic.Bool  // given up
	reaped   atomic.Bool  // left to the reaper
	finished sync.Once
	fate     error         // what Release says about the end; valid when released is closed
	released chan struct{} // closed when the key is gone, or left to the reaper
}

func (l *claim) newContender(x *session) *contender {
	name := x.takeName()
	c := &contender{claim: l, session: x, name: name, key: l.prefix() + markOf(l.mode) + name, released: make(chan struct{})}
	// Not derived from the context of Acquire, which bounds only the wait.
	c.life, c.end = context.WithCancelCause(context.Background())
	c.tenure, c.quit = context.WithCancelCause(c.life)
	c.contested.Store(contention.New(func() { c.join() }))
	c.shared.Store(l.mode == second.Reading)
	return c
}

func (c *contender) put() clientv3.Op {
	return clientv3.OpPut(c.key, c.claim.describe(), clientv3.WithLease(c.session.id))
}

// join has the contender follow its queue, unless it has been given up.
func (c *contender) join() *queue {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.queue == nil && !c.left {
		c.queue = c.claim.store.join(c)
	}
	return c.queue
}

func (c *contender) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = true
	if c.later != nil {
		c.later.Stop()
	}
	if c.queue != nil {
		c.queue.part(c)
		c.queue = nil
	}
}

// holdUnwatched makes a contender that never waited the holder. A short hold costs no watch;
// for one that lasts, it is time to hear of the deletion of the key.
func (c *contender) holdUnwatched() bool {
	if !c.session.Hold(c) {
		return false
	}
	c.held, c.granted = true, time.Now()
	c.loss.Held()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.later = time.AfterFunc(c.session.ttl/6, func() { c.join() })
	return true
}

// lose ends the hold, or the wait. If the key is still there, others wait behind it: it goes
// when the owner has given it up, who may need the margin to come to an end.
func (c *contender) lose(reason error) {
	c.end(reason)
	if !c.spent.Load() { // else the release says so
		c.reportLoss(reason)
	}
	c.wake.Set()
	if !c.gone.Load() {
		c.claim.store.spawn(c.reapAfterMargin)
	}
}

func (c *contender) reportLoss(cause error) {
	s := c.claim.store
	c.loss.Tell(cause, func() {
		s.spawn(func() {
			s.options.logger.Warn("etcdlock: lock lost", "path", c.claim.path, "token", c.token, "cause", cause)
		})
	})
}

func (c *contender) lost() bool { return c.life.Err() != nil }

func (c *contender) reapAfterMargin() {
	s := c.claim.store
	margin := time.NewTimer(s.margin(c.session.ttl))
	defer margin.Stop()
	select {
	case <-margin.C:
		if !c.session.Over() { // or the key goes with that
			c.reap()
		}
	case <-c.released:
	case <-s.ctx.Done():
	}
}

// reap leaves the key to the reaper, unless it is known to be gone.
func (c *contender) reap() {
	if !c.gone.Load() && !c.reaped.Swap(true) {
		c.claim.store.reaper.Add(remains{key: c.key, created: c.token, session: c.session})
	}
}

// discard removes a contender that is not wanted, or lets the reaper do it.
func (c *contender) discard() {
	c.spent.Store(true)
	c.giveUp()
	switch {
	case c.token == 0 && !c.unclear:
		c.finishAs(nil, true) // there is no key
	case c.token == 0:
		c.leaveToReaper(nil)
	default:
		c.startDelete(nil)
	}
}
