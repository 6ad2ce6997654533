package pglock

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierlock/tierlock/internal/contention"
	"github.com/tierlock/tierlock/internal/notice"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/mutexbool"
)

// A contender is one row in the queue for a lock, and the grant when it is first. It is enrolled in its
// session from before the row is inserted until it is given up.
type contender struct {
	claim   *claim
	session *session
	id      string
	wake    mutexbool.Bool // look again

	// Set by the attempt, before anybody else sees them.
	token   int64        // 0 as long as it is not known to be in the queue
	entered atomic.Int64 // when it was, a time.Duration; 0 likewise
	unclear bool         // a request that puts it there was not answered

	doomed bool // a requeue that deletes it was not answered; set by that, before it looks further

	turn   atomic.Bool // the server has said that it is first
	behind atomic.Bool // and that somebody waits

	loss   notice.Loss
	life   context.Context // ends when the lock, or the place in the queue, is lost
	end    context.CancelCauseFunc
	tenure context.Context // ends with life, and when it is given up
	quit   context.CancelCauseFunc
	gone   atomic.Bool // it is known not to be in the queue any more

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

	pending  atomic.Int32 // guarded transactions whose outcome is not known
	spent    atomic.Bool  // given up
	reaped   atomic.Bool  // left to the reaper
	finished sync.Once
	fate     error         // what Release says about the end; valid when released is closed
	released chan struct{} // closed when it is not in the queue any more, or left to the reaper
}

func (l *claim) newContender(x *session) *contender {
	c := &contender{claim: l, session: x, id: newID(), released: make(chan struct{})}
	// Not derived from the context of Acquire, which bounds only the wait.
	c.life, c.end = context.WithCancelCause(context.Background())
	c.tenure, c.quit = context.WithCancelCause(c.life)
	c.contested.Store(contention.New(func() { c.join() }))
	c.shared.Store(l.mode == second.Reading)
	x.byID.Store(c.id, c)
	return c
}

// idIfAny is for requests that may be about no contender.
func (c *contender) idIfAny() any {
	if c == nil {
		return nil
	}
	return c.id
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
	c.session.byID.Delete(c.id)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = true
	if c.later != nil {
		c.later.Stop()
	}
	if c.queue != nil {
		c.claim.store.part(c, c.queue)
		c.queue = nil
	}
}

// tellTurn notes that the server has said that the contender is first. That is so for as long as it is
// in the queue.
func (c *contender) tellTurn(contested bool) {
	c.behind.Store(contested)
	c.turn.Store(true)
	c.wake.Set()
}

// contestLocked tells the holder of one who waits, and was known to at a time. The queue is locked.
func (c *contender) contestLocked(since time.Time) {
	if contested := c.contested.Load(); !contested.Raised() {
		if since.Before(c.granted) {
			since = c.granted
		}
		contested.Raise(since)
	}
}

// holdUnfollowed makes a contender that never waited the holder. A short hold costs no look at the queue;
// for one that lasts, it is time to hear of its deletion.
func (c *contender) holdUnfollowed() bool {
	if !c.take() {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.later = time.AfterFunc(c.claim.store.options.ttl/6, func() { c.join() })
	return true
}

// take makes a contender that is first the holder, unless its lease has run out, or nobody is to be given
// a lock yet. It is woken when that changes.
func (c *contender) take() bool {
	s := c.claim.store
	if q := s.Quarantine(); q != nil {
		time.AfterFunc(time.Until(q.Until), c.wake.Set)
		return false
	}
	if !c.session.Hold(c) {
		return false
	}
	c.held, c.granted = true, time.Now()
	c.loss.Held()
	return true
}

// wasThere reports whether the contender was in the queue at a time.
func (c *contender) wasThere(at time.Duration) bool {
	entered := time.Duration(c.entered.Load())
	return entered > 0 && entered <= at
}

// lose ends the hold, or the wait. If the contender is still in the queue, others wait behind it: it goes
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
			s.options.logger.Warn("pglock: lock lost", "path", c.claim.path, "token", c.token, "cause", cause)
		})
	})
}

func (c *contender) lost() bool { return c.life.Err() != nil }

func (c *contender) reapAfterMargin() {
	s := c.claim.store
	margin := time.NewTimer(s.options.safety())
	defer margin.Stop()
	select {
	case <-margin.C:
		if !c.session.Over() { // or it goes with that
			c.reap()
		}
	case <-c.released:
	case <-s.ctx.Done():
	}
}

// reap leaves the contender to the reaper, unless it is known to be gone.
func (c *contender) reap() {
	if !c.gone.Load() && !c.reaped.Swap(true) {
		c.claim.store.reaper.Add(remains{path: c.claim.path, id: c.id, session: c.session})
	}
}

// discard removes a contender that is not wanted, or lets the reaper do it.
func (c *contender) discard() {
	c.spent.Store(true)
	c.giveUp()
	switch {
	case c.token == 0 && !c.unclear:
		c.finish(nil) // it is in no queue
	case c.token == 0:
		c.leaveToReaper(nil)
	default:
		c.startDelete(nil)
	}
}
