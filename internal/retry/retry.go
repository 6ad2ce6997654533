// Package retry has the backoff by which requests to a store are repeated.
package retry

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// A Pace is a backoff from 10 ms to a second that never gives up; only the context ends the retries. It is created when it is first used,
// since most requests need no retry.
type Pace struct{ backoff *backoff.ExponentialBackOff }

// New returns a backoff that starts at 10 ms.
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

// Reset starts the backoff at 10 ms again.
func (p *Pace) Reset() { p.backoff = nil }

// Pause waits for d or until ctx ends, and then returns the cause of ctx.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
