// Package retry is the pace at which a store is asked again.
package retry

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// A Pace is a backoff from 10 ms to a second that never gives up: the context decides. Most of them are never asked.
type Pace struct{ backoff *backoff.ExponentialBackOff }

// New returns a pace at its beginning.
func New() *Pace { return new(Pace) }

// NextBackOff returns how long to wait before the next try.
func (p *Pace) NextBackOff() time.Duration {
	if p.backoff == nil {
		p.backoff = backoff.NewExponentialBackOff(
			backoff.WithInitialInterval(10*time.Millisecond),
			backoff.WithMaxInterval(time.Second),
			backoff.WithMaxElapsedTime(0)) // the default gives up after 15 minutes
	}
	return p.backoff.NextBackOff()
}

// Reset goes back to the beginning.
func (p *Pace) Reset() { p.backoff = nil }

// Pause waits for d, or for the end of ctx, whose cause it returns.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
