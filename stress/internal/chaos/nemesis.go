package chaos

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/tierlock/tierlock/stress/internal/clock"
)

// nemesis injects faults one after the other and heals each of them, until ctx ends.
type nemesis struct {
	random   *rand.Rand
	timeout  time.Duration // the session timeout
	faultLog *faultLog
}

// The method rage injects all faults again and again, each time in a random order. Before each fault it pauses, for at most calm session
// timeouts.
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

// The method pause waits for a random time from low to high session timeouts. It returns earlier if ctx ends.
func (n *nemesis) pause(ctx context.Context, low, high float64) {
	share := low + (high-low)*n.random.Float64()
	clock.Sleep(time.Duration(share*float64(n.timeout)), ctx.Done())
}
