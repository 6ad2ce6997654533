package sim

import (
	"context"

	"github.com/tierlock/tierlock/tier"
)

// An acquisition is one call of Acquire, in a goroutine of its own.
type acquisition struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when Acquire has returned
	hold   *tier.Hold    // valid when done is closed, like the next one
	err    error
}

// begin calls Acquire. If that succeeds, it calls granted before it closes done.
func (a *acquisition) begin(ctx context.Context, mu *tier.Mutex, granted func()) {
	ctx, a.cancel = context.WithCancel(ctx)
	a.done = make(chan struct{})
	go func() {
		defer close(a.done)
		if a.hold, a.err = mu.Acquire(ctx); a.err == nil {
			granted()
		}
	}()
}
