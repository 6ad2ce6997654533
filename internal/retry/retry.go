// Package retry is the pace at which a store is asked again.
package retry

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// New returns a backoff from 10 ms to a second that never gives up: the context decides.
func New() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(10*time.Millisecond),
		backoff.WithMaxInterval(time.Second),
		backoff.WithMaxElapsedTime(0)) // the default gives up after 15 minutes
}

// Pause waits for d, or for the end of ctx, whose cause it returns.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
