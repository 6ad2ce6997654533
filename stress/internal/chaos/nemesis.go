package chaos

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/tierlock/tierlock/stress/internal/clock"
)

// nemesis injects one fault after the other until ctx ends, and heals each.
type nemesis struct {
	random   *rand.Rand
	timeout  time.Duration // of sessions
	faultLog *faultLog
}

// rage injects the faults in random orders, with pauses in between of up to calm session timeouts.
func (n *nemesis) rage(ctx context.Context, faults []func(context.Context), calm float64) {
	for {
		for _, i := range n.random.Perm(len(faults)) {
			if n.pause(ctx, 0.05, calm); ctx.Err() != nil {
				return
			}
			faults[i](ctx)
		}
	}
}

// pause waits between low and high session timeouts, or until ctx ends.
func (n *nemesis) pause(ctx context.Context, low, high float64) {
	share := low + (high-low)*n.random.Float64()
	clock.Sleep(time.Duration(share*float64(n.timeout)), ctx.Done())
}
