package tier

import (
	"context"
	"errors"
	"fmt"
	"time"
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
