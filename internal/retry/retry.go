// Package retry provides the backoff between repeated requests to a store.
package retry

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// A Pace is a backoff that starts at 10 ms and grows to a second. It never gives up; only the context of a caller ends its retries. The
// backoff inside is created at the first retry, since most requests need none.
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

// Reset makes the next backoff start at 10 ms again.
func (p *Pace) Reset() { p.backoff = nil }

// Pause waits for d and returns nil. If ctx ends first, it returns the cause of ctx.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
