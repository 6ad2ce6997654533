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

// enter waits at the gate until its turn comes with the grant, or ctx is done.
func (c *cohort) enter(ctx context.Context, lock *Mutex) (*ownership, error) {
	if limit := lock.options.maxWait; limit > 0 {
		wait, cancel := context.WithTimeoutCause(ctx, limit, ErrWaitLimit)
		defer cancel()
		ctx = wait
	}
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
	begun := c.registry.now()
	c.tally.waited -= begun
	switch c.state {
	case idle:
		c.fetchLocked()
	case held:
		c.expectHandOffLocked()
	}
	c.mu.Unlock()

	long, stop := c.registry.options.observer.alarm()
	defer stop()
	for {
		select {
		case <-w.turn:
			if errors.Is(w.err(), ErrClosed) {
				return nil, &WaitError{c.wait(ctx, lock, begun), ErrClosed}
			}
			return w.own, w.err()
		case <-long:
			c.tellWaiting(ctx, w, begun)
		case <-ctx.Done():
			return nil, c.giveUp(ctx, w, begun, context.Cause(ctx))
		case <-c.registry.second.Done():
			return nil, c.giveUp(ctx, w, begun, ErrClosed)
		}
	}
}

// giveUp ends a wait that began then, and says who was in the way.
func (c *cohort) giveUp(ctx context.Context, w *waiter, begun time.Duration, cause error) error {
	wait := c.wait(ctx, w.errand, begun)
	c.withdraw(w)
	if problem := c.registry.second.Err(); problem != nil && !errors.Is(cause, problem) {
		cause = fmt.Errorf("%w: %w", cause, problem)
	}
	return &WaitError{wait, cause}
}

// withdraw takes a waiter out of the queue. If it was chosen a moment ago, the turn goes
// to the next one, together with the grant: nobody loses the place.
func (c *cohort) withdraw(w *waiter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gate.leave(w) {
		c.tally.waited += c.registry.now()
		if c.gate.empty() && c.quit != nil {
			c.quit() // nobody wants the grant any more
		}
		return
	}
	if w.own != nil { // it was no turn
		c.tally.came[c.source]--
		c.tally.held += c.registry.now() // or the sum would go back
		c.passOnLocked(w.own.grant)
	}
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
	c.round, c.source = c.gate.arrivals, found
	own := c.ownLocked(new(ownership), lock, grant, c.registry.now())
	c.expectHandOffLocked() // by who came meanwhile
	return own, nil
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
