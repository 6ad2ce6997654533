package tier

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// The ways into a cohort, and out of its queue.

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
	begun := c.registry.now()
	if own := c.joinLocked(lock, begun); own != nil {
		c.mu.Unlock()
		return own, nil
	}
	w := c.gate.join(lock)
	c.tally.waited -= begun
	switch c.state {
	case idle:
		c.fetchLocked()
	case held:
		c.admitReadersLocked(begun)
		c.expectHandOffLocked()
	case lingering: // what is kept is to read, and that is not enough
		c.requeueLocked(c.grant)
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
			if err := w.err(); err != nil {
				return nil, err
			}
			return &w.seat, nil
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
	return &WaitError{wait, wait.Quarantine.Explain(cause)}
}

// withdraw takes a waiter out of the queue. If it was chosen a moment ago, the turn goes
// to the next one, together with the grant: nobody loses the place.
func (c *cohort) withdraw(w *waiter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gate.leave(w) {
		now := c.registry.now()
		c.tally.waited += now
		if c.gate.empty() && c.quit != nil {
			c.quit() // nobody wants the grant any more
		}
		c.admitReadersLocked(now) // who waited behind it
		return
	}
	if own := &w.seat; w.err() == nil { // it was no turn
		c.tally.came[own.source]--
		if !c.disownLocked(own, c.registry.now()) {
			c.passOnLocked(own.grant, own.source.ofNext())
		}
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
	if own := c.joinLocked(lock, c.registry.now()); own != nil {
		c.mu.Unlock()
		return own, nil
	}
	kept := c.lingeringLocked() // to read, which is not enough
	if c.state != idle && kept == nil {
		c.mu.Unlock()
		return nil, c.failure("try", c.registry.taken())
	}
	c.state = fetching
	c.forgetLocked()
	c.mu.Unlock()

	if kept != nil && !c.drop(ctx, kept) {
		return nil, c.failure("try", context.Cause(ctx))
	}
	grant, err := lock.claim.TryAcquire(ctx)
	if err != nil {
		c.free()
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.round = c.gate.arrivals
	now := c.registry.now()
	own := c.ownLocked(new(ownership), lock, grant, now, found)
	c.admitReadersLocked(now) // who came meanwhile
	c.expectHandOffLocked()
	return own, nil
}

// drop gives up a grant that lingered, in favour of another. It reports whether that is done; if ctx ends
// before, it goes on, and the cohort is free after it.
func (c *cohort) drop(ctx context.Context, kept second.Grant) bool {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		kept.Release() // if it does not go at once, that is the second tier's business
	}()
	select {
	case <-gone:
		return true
	case <-ctx.Done():
	}
	if !c.registry.spawn(c, func() { <-gone; c.free() }) {
		<-gone
		c.free()
	}
	return false
}
