package tier

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// await waits for the turn of a claimant, or the end of ctx. Once long comes, the wait is told.
func (p *pool) await(ctx context.Context, c *claimant, begun time.Duration, long <-chan time.Time) error {
	for {
		select {
		case <-c.turn:
			if errors.Is(c.refusal, ErrClosed) {
				return &WaitError{p.wait(c, begun), ErrClosed}
			}
			return c.refusal
		case <-long:
			p.tellWaiting(ctx, c, begun)
		case <-ctx.Done():
			return p.giveUp(c, begun, context.Cause(ctx))
		case <-p.registry.second.Done():
			return p.giveUp(c, begun, ErrClosed)
		}
	}
}

// giveUp ends a wait that began then, and says who was in the way.
func (p *pool) giveUp(c *claimant, begun time.Duration, cause error) error {
	wait := p.wait(c, begun)
	p.withdraw(c)
	if problem := p.registry.second.Err(); problem != nil && !errors.Is(cause, problem) {
		cause = fmt.Errorf("%w: %w", cause, problem)
	}
	return &WaitError{wait, wait.Quarantine.Explain(cause)}
}

// wait is what is known of a wait that began then.
func (p *pool) wait(c *claimant, begun time.Duration) Wait {
	w := Wait{Path: p.path, Waited: p.registry.now() - begun, Permits: c.count}
	p.mu.Lock()
	trip := p.trip
	w.Taken, w.First = p.taken, trip != nil && trip == p.asked
	p.mu.Unlock()
	if trip != nil {
		w.stand(trip.Standing(), p.registry.second)
	}
	return w
}
