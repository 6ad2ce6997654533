package redislock

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

// A contender is one in the queue for a lock, and the grant when it has that. It is enrolled in its
// session from before it queues until it is given up.
type contender struct {
	claim   *claim
	session *session
	id      string
	wake    mutexbool.Bool // look again

	token   atomic.Int64 // 0 as long as it is not known to queue
	unclear atomic.Bool  // a request to queue was not answered

	loss   notice.Loss
	life   context.Context // ends when the lock, or the place in the queue, is lost
	end    context.CancelCauseFunc
	tenure context.Context // ends with life, and when it is given up
	quit   context.CancelCauseFunc
	gone   atomic.Bool // it is known not to queue any more

	contested atomic.Pointer[contention.Signal]
	revoked   mutexbool.Bool

	shared  atomic.Bool // it reads, or a request is sent that may make it read
	opening sync.Mutex  // guards the field below; one Share at a time is at it, for as long as that takes
	opened  bool        // by Share

	writing sync.Mutex // one guarded write is under way at a time; guards the field below
	writes  int64

	mu   sync.Mutex // guards the fields below; before that of the lease
	said answer     // the newest
	held bool

	pending  atomic.Int32 // guarded writes that may still take effect
	spent    atomic.Bool  // given up
	finished sync.Once
	fate     error         // what Release says about the end; valid when released is closed
	released chan struct{} // closed when it is gone, or left to the reaper
}

func (l *claim) newContender(x *session) *contender {
	c := &contender{claim: l, session: x, id: l.store.newID(), released: make(chan struct{})}
	// Not derived from the context of Acquire, which bounds only the wait.
	c.life, c.end = context.WithCancelCause(context.Background())
	c.tenure, c.quit = context.WithCancelCause(c.life)
	c.contested.Store(newSignal())
	c.shared.Store(l.mode == second.Reading)
	l.store.byID.Store(c.id, c)
	return c
}

// newSignal is one for which there is no need to look: heartbeats tell anyway.
func newSignal() *contention.Signal { return contention.New(func() {}) }

// stepBack is more than one answer can be behind another: then it is the server's clock that was set
// back.
const stepBack = time.Second

// apply takes over what Redis says. What one connection brings can be older than what another one
// has brought.
func (c *contender) apply(a answer) {
	if !a.known {
		c.gone.Store(true)
		c.lose(deleted(c.claim.path))
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.said.at - a.at; 0 < old && old < stepBack {
		return
	}
	c.token.Store(a.token)
	c.said = a
	if a.asked {
		c.revoked.Set()
	}
	c.contestLocked()
	c.wake.Set()
}

func (c *contender) contestLocked() {
	if signal := c.contested.Load(); c.held && c.said.behind && !signal.Raised() {
		signal.Raise(time.Now())
	}
}

func (c *contender) newest() answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.said
}

// hold makes a contender that has the lock the holder. Nobody can come before it any more, so that
// this is right however old the word is, if the lease runs: a round of heartbeats would have told of a
// loss before it renews that.
func (c *contender) hold() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.said.has || !c.session.Hold(c) {
		return false
	}
	c.held = true
	c.loss.Held()
	c.contestLocked()
	return true
}

// standing is what was said of those ahead.
func (c *contender) standing() second.Standing {
	a := c.newest()
	if a.ahead == 0 {
		return second.Standing{}
	}
	return second.Standing{Ahead: a.ahead, Nearest: a.nearest.describe()}
}

// lose ends the hold, or the wait. What is in the queue goes when the owner has given it up, who may
// need the margin to come to an end, or else with its lease, as its heart beats no more.
func (c *contender) lose(reason error) {
	c.end(reason)
	if !c.spent.Load() { // else the release says so
		c.reportLoss(reason)
	}
	c.wake.Set()
}

func (c *contender) reportLoss(cause error) {
	s := c.claim.store
	c.loss.Tell(cause, func() {
		s.spawn(func() {
			s.options.logger.Warn("redislock: lock lost", "path", c.claim.path, "token", c.token.Load(), "cause", cause)
		})
	})
}

func (c *contender) lost() bool { return c.life.Err() != nil }

// discard removes a contender that is not wanted, or lets the reaper do it.
func (c *contender) discard() {
	c.spent.Store(true)
	c.giveUp()
	switch {
	case c.token.Load() == 0 && !c.unclear.Load():
		c.finishAs(nil, true) // it never queued
	default:
		c.startRelease(nil)
	}
}
