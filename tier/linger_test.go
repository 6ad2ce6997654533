package tier_test

import (
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/tier"
)

// A lingering node is not taken for a hold: by its own process never, and others are
// told that it may be one.
func TestContendersTellALingeringNodeFromAHold(t *testing.T) {
	metered(t, func(t *testing.T, _ *memory.Server, _ *meter, process func(...tier.Option) *tier.Mutex) {
		mu, other := process(tier.WithLinger(time.Minute)), process()
		look := func(mu *tier.Mutex) tier.Contender {
			queue, err := mu.Contenders(soon(t))
			if err != nil || len(queue) != 1 {
				t.Fatalf("Contenders: %+v, %v, want one", queue, err)
			}
			return queue[0]
		}
		for range 2 { // a node that lingered can be held again
			hold := acquire(t, mu)
			if c := look(mu); c.Lingering || c.Linger != time.Minute {
				t.Errorf("while held: lingering %t, for up to %v, want false, 1m", c.Lingering, c.Linger)
			}
			release(t, hold)
			if c := look(mu); !c.Lingering || c.Linger != time.Minute {
				t.Errorf("after the release: lingering %t, for up to %v, want true, 1m", c.Lingering, c.Linger)
			}
			if c := look(other); c.Lingering || c.Linger != time.Minute {
				t.Errorf("seen from another process: lingering %t, for up to %v, want false, 1m", c.Lingering, c.Linger)
			}
		}
	})
}
