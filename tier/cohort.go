package tier

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// A cohort is what this process has at stake in one lock: the goroutines in front of
// the gate, the one behind it, and the grant they share.
type cohort struct {
	registry *Registry
	key      lockKey
	members  atomic.Int64 // callers, holders and couriers; the first one comes, and the last one goes, under registry.mu

	mu       sync.Mutex // guards the fields below; never held across a client call or a wait
	gate     gate
	state    state
	grant    second.Grant       // of the owners, or that lingers; meaningful while held or lingering
	owner    *ownership         // while held by one alone; else nil
	readers  atomic.Int64       // owners at the same time, while held by those; who is not the last leaves without the mutex
	since    time.Duration      // when the present hold began, or the lingering, on the registry's clock
	policy   *options           // of the mutex by which the latest owner came
	under    *second.Wait       // what the courier waits for; nil while there is none
	quit     context.CancelFunc // calls the courier back; nil unless fetching for waiters
	round    int64              // the last arrival before the grant came: up to it they waited then
	lingerer lingerer
	sharer   sharer
	heed     heed
	draining bool // nobody is to come any more
	tally    tally
}

// A lockKey tells the locks of a registry apart: one path can be that of a mutex and of a
// reader/writer lock, which exclude each other like locks of two processes.
type lockKey struct {
	path string
	rw   bool
}

// A state says who acts for the cohort.
type state int

const (
	idle      state = iota // nobody: no grant, and nobody waits
	fetching               // the courier or a TryAcquire is at the second tier
	held                   // an owner is behind the gate, or several that read
	lingering              // the grant is kept, and nobody wants it
	leaving                // the grant is being given up, and nobody has the turn
)

func (s state) String() string {
	return [...]string{"idle", "fetching", "held", "lingering", "leaving"}[s]
}

// failure wraps an error that does not come from the second tier and so names no path yet.
func (c *cohort) failure(op string, err error) error {
	return fmt.Errorf("tier: %s %s: %w", op, c.key.path, err)
}

// passOnLocked gives a grant that was acquired but not used to the first waiter, and
// away if there is none.
func (c *cohort) passOnLocked(grant second.Grant, source source) {
	if now := c.registry.now(); !c.gate.empty() && grant.ErrAt(now) == nil {
		if c.admitsLocked(grant, c.gate.first.errand) {
			c.admitLocked(grant, now, source)
			return
		}
		if c.requeueLocked(grant) {
			return
		}
	}
	c.leaveLocked()
	if !c.registry.spawn(c, func() {
		grant.Release() // if it does not go at once, that is the second tier's business
		c.free()
	}) {
		c.freeLocked()
	}
}

// admitLocked lets the first waiter through with grant, now, and if it reads, those right behind
// that do, too.
func (c *cohort) admitLocked(grant second.Grant, now time.Duration, source source) {
	c.admitFirstLocked(grant, now, source)
	for c.reading() && !c.gate.empty() && c.gate.first.errand.reads() {
		c.admitFirstLocked(grant, now, join)
	}
	c.expectHandOffLocked()
}

func (c *cohort) admitFirstLocked(grant second.Grant, now time.Duration, source source) {
	w := c.gate.first
	c.tally.waited += now
	c.ownLocked(&w.seat, w.errand, grant, now, source)
	c.gate.admit()
}

// ownLocked makes own an ownership of grant by way of m, from now on.
func (c *cohort) ownLocked(own *ownership, m *Mutex, grant second.Grant, now time.Duration, source source) *ownership {
	if source != join {
		c.state, c.grant, c.since = held, grant, now
	}
	c.policy = m.options
	own.source = source
	if o := c.registry.options.observer; o != nil {
		own.watched = &watched{observer: o, since: now}
	}
	c.tally.held -= now
	c.tally.came[source]++
	if m.reads() {
		c.readers.Add(1)
		c.shareLaterLocked(grant)
	} else {
		c.owner = own
	}
	return own.begin(c, grant, m.reads())
}

// disownLocked ends an ownership. It reports whether others, who read, have the lock still.
func (c *cohort) disownLocked(own *ownership, now time.Duration) (others bool) {
	c.tally.held += now
	if own == c.owner {
		c.owner = nil
		return false
	}
	return c.readers.Add(-1) > 0
}

// leaveLocked is called before the grant is given up.
func (c *cohort) leaveLocked() {
	c.state = leaving
	c.forgetLocked()
}

// forgetLocked ends what is done for a grant that this process is to keep no longer.
func (c *cohort) forgetLocked() {
	c.lingerer.stop()
	c.sharer.stop()
	c.heed = heed{}
}

// free follows the end of a grant: those who wait get a new one.
func (c *cohort) free() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.freeLocked()
}

func (c *cohort) freeLocked() {
	c.state = idle
	if !c.gate.empty() {
		c.fetchLocked()
	}
}

// release follows the last release of an ownership. Unless the grant stays, it goes
// first, and the gate opens after it.
func (c *cohort) release(own *ownership) error {
	if loss, left := c.slipOut(own); left {
		return c.left(loss)
	}
	grant := own.grant
	c.mu.Lock()
	now := c.registry.now()
	next := c.decideLocked(grant, now)
	if own != c.owner && c.readers.Load() > 1 { // somebody has joined meanwhile, and keeps the grant
		c.mu.Unlock()
		return c.release(own)
	}
	c.disownLocked(own, now)
	switch next {
	case handOn:
		c.admitLocked(grant, now, handOff)
		c.mu.Unlock()
		return nil
	case linger:
		c.lingerLocked(grant, now)
		c.mu.Unlock()
		return nil
	case requeue:
		if c.requeueLocked(grant) {
			c.mu.Unlock()
			return c.noteLoss(grant.AwaitRelease())
		}
	}
	c.leaveLocked()
	c.mu.Unlock()
	err := c.noteLoss(grant.Release())
	c.free()
	return err
}

// noteLoss counts the loss of a lock, if err is one.
func (c *cohort) noteLoss(err error) error {
	if errors.Is(err, ErrLost) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.tally.lose(LossCause(second.CauseOf(err)))
	}
	return err
}
