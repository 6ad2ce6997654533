package tier

import (
	"context"
	"errors"
	"fmt"
	"sync"

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
	policy   *options           // of the mutex by which the present or last owner came
	wait     *second.Wait       // of the courier, while there is one
	quit     context.CancelFunc // calls the courier back; nil unless fetching for waiters
	round    int64              // the last arrival before the grant came: up to it they waited then
	lingerer lingerer
	draining bool // nobody is to come any more
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

// enter waits at the gate until its turn comes with the grant, or ctx is done.
func (c *cohort) enter(ctx context.Context, lock *Mutex) (*ownership, error) {
	c.mu.Lock()
	if c.draining {
		c.mu.Unlock()
		return nil, c.failure("acquire", ErrClosed)
	}
	if own := c.resumeLocked(lock); own != nil {
		c.mu.Unlock()
		return own, nil
	}
	w := c.gate.join()
	w.errand = lock
	switch c.state {
	case idle:
		c.fetchLocked()
	case held:
		c.expectHandOffLocked()
	}
	c.mu.Unlock()

	select {
	case <-w.turn:
		return w.own, w.err()
	case <-ctx.Done():
		return nil, c.giveUp(w, context.Cause(ctx))
	case <-c.registry.second.Done():
		return nil, c.giveUp(w, ErrClosed)
	}
}

// giveUp takes a waiter out of the queue. If it was chosen a moment ago, the turn goes
// to the next one, together with the grant: nobody loses the place.
func (c *cohort) giveUp(w *waiter, cause error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.gate.leave(w):
		if w.own != nil {
			c.passOnLocked(w.own.grant)
		}
	case c.gate.empty() && c.quit != nil:
		c.quit() // nobody wants the grant any more
	}
	switch problem := c.registry.second.Err(); {
	case problem != nil && !errors.Is(cause, problem):
		cause = fmt.Errorf("%w: %w", cause, problem)
	case problem == nil && c.state == held: // maybe by the caller itself, without the context of its hold
		cause = fmt.Errorf("%w: this process has the lock", cause)
	}
	return c.failure("acquire", cause)
}

// failure wraps an error that does not come from the second tier and so names no path yet.
func (c *cohort) failure(op string, err error) error {
	return fmt.Errorf("tier: %s %s: %w", op, c.path, err)
}

// passOnLocked gives a grant that was acquired but not used to the first waiter, and
// away if there is none.
func (c *cohort) passOnLocked(grant second.Grant) {
	if !c.gate.empty() && grant.Err() == nil {
		c.admitLocked(grant)
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

// admitLocked lets the first waiter through with grant.
func (c *cohort) admitLocked(grant second.Grant) {
	w := c.gate.first
	c.gate.admit(c.ownLocked(&w.seat, w.errand, grant))
	c.expectHandOffLocked()
}

// ownLocked makes own the ownership of grant by way of m.
func (c *cohort) ownLocked(own *ownership, m *Mutex, grant second.Grant) *ownership {
	c.state, c.grant, c.policy = held, grant, m.options
	return own.begin(c, grant)
}

// leaveLocked is called before the grant is given up.
func (c *cohort) leaveLocked() {
	c.state = leaving
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

// try takes the lock if nobody here or elsewhere has it.
func (c *cohort) try(ctx context.Context, lock *Mutex) (*ownership, error) {
	c.mu.Lock()
	if c.draining {
		c.mu.Unlock()
		return nil, c.failure("try", ErrClosed)
	}
	if own := c.resumeLocked(lock); own != nil {
		c.mu.Unlock()
		return own, nil
	}
	if c.state != idle {
		c.mu.Unlock()
		return nil, c.failure("try", ErrLocked)
	}
	c.state = fetching
	c.mu.Unlock()

	grant, err := lock.claim.TryAcquire(ctx)
	if err != nil {
		c.free()
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.round = c.gate.arrivals
	own := c.ownLocked(new(ownership), lock, grant)
	c.expectHandOffLocked() // by who came meanwhile
	return own, nil
}

// release follows the last release of an ownership. Unless the grant stays, it goes
// first, and the gate opens after it.
func (c *cohort) release(own *ownership) error {
	grant := own.grant
	c.mu.Lock()
	switch c.decideLocked(grant) {
	case handOn:
		c.admitLocked(grant)
		c.mu.Unlock()
		return nil
	case linger:
		c.lingerLocked(grant)
		c.mu.Unlock()
		return nil
	case requeue:
		if c.requeueLocked(grant) {
			c.mu.Unlock()
			return grant.AwaitRelease()
		}
	}
	c.leaveLocked()
	c.mu.Unlock()
	err := grant.Release()
	c.free()
	return err
}
