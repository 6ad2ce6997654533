package tier

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// A cohort is what this process has at stake in one lock: the goroutines in front of
// the gate, the one behind it, and the grant they share.
type cohort struct {
	registry *Registry
	path     string
	members  int // guarded by registry.mu: callers, holders and couriers

	mu       sync.Mutex // guards the fields below; never held across a client call or a wait
	gate     gate
	state    state
	grant    second.Grant       // of the owner, or that lingers; meaningful while held or lingering
	owner    *ownership         // meaningful while held
	since    time.Duration      // when that began, or the lingering, on the registry's clock
	source   source             // from where the grant came to the owner
	watched  *watched           // of the owner, for the observer; nil if there is none
	policy   *options           // of the mutex by which the present or last owner came
	under    *second.Wait       // what the courier waits for; nil while there is none
	quit     context.CancelFunc // calls the courier back; nil unless fetching for waiters
	round    int64              // the last arrival before the grant came: up to it they waited then
	lingerer lingerer
	draining bool // nobody is to come any more
	tally    tally
}

// A state says who acts for the cohort.
type state int

const (
	idle      state = iota // nobody: no grant, and nobody waits
	fetching               // the courier or a TryAcquire is at the second tier
	held                   // an owner is behind the gate
	lingering              // the grant is kept, and nobody wants it
	leaving                // the grant is being given up, and nobody has the turn
)

func (s state) String() string {
	return [...]string{"idle", "fetching", "held", "lingering", "leaving"}[s]
}

// failure wraps an error that does not come from the second tier and so names no path yet.
func (c *cohort) failure(op string, err error) error {
	return fmt.Errorf("tier: %s %s: %w", op, c.path, err)
}

// passOnLocked gives a grant that was acquired but not used to the first waiter, and
// away if there is none.
func (c *cohort) passOnLocked(grant second.Grant) {
	if now := c.registry.now(); !c.gate.empty() && grant.ErrAt(now) == nil {
		c.admitLocked(grant, now)
		return
	}
	c.leaveLocked()
	if !c.registry.spawn(c, func() {
		grant.Release() // if it does not go at once, that is the second tier's business
		c.free()
	}) {
		c.freeLocked()
	}
}

// admitLocked lets the first waiter through with grant, now.
func (c *cohort) admitLocked(grant second.Grant, now time.Duration) {
	w := c.gate.first
	c.tally.waited += now
	c.gate.admit(c.ownLocked(&w.seat, w.errand, grant, now))
	c.expectHandOffLocked()
}

// ownLocked makes own the ownership of grant by way of m, from now on.
func (c *cohort) ownLocked(own *ownership, m *Mutex, grant second.Grant, now time.Duration) *ownership {
	c.state, c.grant, c.owner, c.policy = held, grant, own, m.options
	c.since = now
	c.tally.held -= now
	c.tally.came[c.source]++
	return own.begin(c, grant)
}

// leaveLocked is called before the grant is given up.
func (c *cohort) leaveLocked() {
	c.state, c.owner = leaving, nil
	c.lingerer.stop()
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
	grant := own.grant
	c.mu.Lock()
	now := c.registry.now()
	next := c.decideLocked(grant, now)
	c.tally.held += now
	switch next {
	case handOn:
		c.source = handOff
		c.admitLocked(grant, now)
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
