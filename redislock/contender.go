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

	token   atomic.Int64 // 0 until it is known to queue
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

	mu     sync.Mutex    // guards the fields below; before that of the lease
	said   answer        // the newest
	heard  time.Duration // when that came, by the clock of the store
	gap    time.Time     // when the key is to be left to locks of others
	unseen time.Duration // when it was seen not to queue, by the clock of the server
	held   bool

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

// apply takes over what Redis says, in answer to a request that was sent then. Answers and messages
// come by several connections, and a process can be stopped before it looks at one: what counts is the
// time of the server. Only an answer to what was asked since is newer in any case, as that time may be
// set back.
func (c *contender) apply(a answer, sent time.Duration) {
	if !c.takes(a, sent) {
		if a.known {
			c.unclear.Store(true) // it may still have to be removed
		}
		c.missing(!a.known)
	}
	c.wake.Set()
}

// missing says that the contender is not at its place any more, and maybe not in the queue at all. That
// is a loss unless it was given up: then it is most often our own doing, and the answer to that tells.
func (c *contender) missing(gone bool) {
	if c.spent.Load() {
		return
	}
	if gone {
		c.gone.Store(true)
	}
	c.lose(deleted(c.claim.path))
}

// takes reports false if the contender has been removed from its place in the queue. Where it has not
// been seen to queue, it may be yet to come there; what was said before it was missing, does not count
// any more.
func (c *contender) takes(a answer, sent time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	queued := c.token.Load() != 0
	switch {
	case queued && a.at < c.said.at && sent <= c.heard:
		return true // overtaken by what it said later
	case !a.known:
		c.unseen = max(c.unseen, a.at)
		return !queued
	case a.at <= c.unseen:
		return false
	case queued && a.token != c.token.Load():
		return false // a late request has given it another place; the one that it had is lost
	}
	c.token.Store(a.token)
	c.said, c.heard, c.gap = a, c.claim.store.now(), time.Now().Add(a.gap)
	if a.asked {
		c.revoked.Set()
	}
	c.contestLocked()
	return true
}

func (c *contender) contestLocked() {
	signal := c.contested.Load()
	signal.Suspect(c.gap)
	if c.held && c.said.behind && !signal.Raised() {
		signal.Raise(time.Now())
	}
}

func (c *contender) newest() answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.said
}

// hold makes a contender that has the lock the holder. Nobody can come before it any more, so that
// this is right however old the word is, if the lease runs: each round of heartbeats asks for all
// contenders, and tells of a loss before it renews the lease.
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

// standing is what was said of those ahead, and whether the primary grants anything.
func (c *contender) standing() second.Standing {
	a := c.newest()
	var s second.Standing
	if a.secluded > 0 {
		s.Quarantine = c.claim.store.Quarantine()
	}
	if a.ahead > 0 {
		s.Ahead, s.Nearest = a.ahead, a.nearest.describe()
	}
	return s
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
