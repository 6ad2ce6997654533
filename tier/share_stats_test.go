package tier_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/tier"
)

// A writer that comes after a reader who joined and left in the same moment has not joined anybody.
func TestStatsOfAWriterInTheTurnOfAReader(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		type key struct{}
		locks := observed(t, s, tier.Observer{Waiting: func(ctx context.Context, _ tier.Wait) {
			if meanwhile, ok := ctx.Value(key{}).(func()); ok { // called while it waits
				meanwhile()
			}
		}}, tier.WithHandOff(time.Hour))
		mu := locks.RWMutex("/locks/a")
		joined := int64(0)
		const rounds = 50
		for range rounds {
			hold := acquire(t, mu.Writer())
			ctx, cancel := context.WithCancel(soon(t))
			reader := start(soon(t), mu.Reader()).blocked(t)
			left := start(context.WithValue(ctx, key{}, func() {
				release(t, hold)
				release(t, reader.granted(t))
				cancel()
			}), mu.Reader()).blocked(t)
			writer := start(soon(t), mu.Writer()).blocked(t)
			if <-left.done; left.err == nil {
				joined++
				release(t, left.hold)
			}
			release(t, writer.granted(t))
			cancel()
		}
		synctest.Wait()
		if joined == rounds {
			t.Error("nobody gave up a turn")
		}
		if s := locks.Stats(); s.Joins != joined || s.HandOffs != 2*rounds || s.Found != rounds {
			t.Errorf("%d who joined stayed: %+v; want as many joins, %d hand-offs, %d found", joined, s, 2*rounds, rounds)
		}
	})
}
