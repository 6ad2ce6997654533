package tier_test

import (
	"context"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/tier"
)

// startAll starts n acquisitions, in this order.
func startAll(ctx context.Context, t *testing.T, n int, mu *tier.Mutex) []*acquisition {
	t.Helper()
	var all []*acquisition
	for range n {
		all = append(all, start(ctx, mu).blocked(t))
	}
	return all
}

// By rounds, only who waited when the node came has a turn before another process: who
// gives up takes the turn along, and who comes later does not get it.
func TestLatecomersInheritNoTurns(t *testing.T) { // I6 I11
	for _, lingered := range []bool{false, true} {
		name := "at once"
		if lingered {
			name = "after lingering"
		}
		t.Run(name, func(t *testing.T) {
			metered(t, func(t *testing.T, _ *memory.Server, _ *meter, process func(...tier.Option) *tier.Mutex) {
				mu := process(tier.WithHandOff(0), tier.WithRounds(), tier.WithLinger(time.Hour))
				other := process()
				before := acquire(t, other)
				first := start(soon(t), mu).blocked(t)
				ctx, cancel := context.WithCancel(soon(t))
				impatient := startAll(ctx, t, 20, mu)
				release(t, before)
				hold := first.granted(t)
				cancel()
				for _, a := range impatient {
					<-a.done
				}
				if lingered {
					token := hold.Token()
					release(t, hold)
					if hold = acquire(t, mu); hold.Token() != token {
						t.Fatal("the node did not linger")
					}
				}
				latecomers := startAll(soon(t), t, 20, mu)
				elsewhere := start(soon(t), other).blocked(t)
				release(t, hold)
				for _, a := range latecomers {
					a.blocked(t)
				}
				release(t, elsewhere.granted(t))
				for _, a := range latecomers {
					release(t, a.granted(t))
				}
			})
		})
	}
}

// Those who stay keep their turns, in order, when others between them give up; and it
// does not matter whether the courier brought the node or a TryAcquire.
func TestWhoWaitedWhenTheNodeCameHasATurnBeforeAnotherProcess(t *testing.T) { // I6 I11
	for _, tried := range []bool{false, true} {
		name := "Acquire"
		if tried {
			name = "TryAcquire"
		}
		t.Run(name, func(t *testing.T) {
			metered(t, func(t *testing.T, s *memory.Server, _ *meter, process func(...tier.Option) *tier.Mutex) {
				mu, other := process(tier.WithHandOff(0), tier.WithRounds()), process()
				var first *acquisition
				var before *tier.Hold
				var answer chan struct{}
				if tried {
					first, answer = hanging(soon(t), t, s, mu)
				} else {
					before = acquire(t, other)
					first = start(soon(t), mu).blocked(t)
				}
				ctx, cancel := context.WithCancel(soon(t))
				patient := startAll(soon(t), t, 2, mu)
				impatient := startAll(ctx, t, 5, mu)
				patient = append(patient, startAll(soon(t), t, 2, mu)...)
				if tried {
					close(answer)
				} else {
					release(t, before)
				}
				hold := first.granted(t)
				cancel()
				for _, a := range impatient {
					<-a.done
				}
				elsewhere := start(soon(t), other).blocked(t)
				latecomer := start(soon(t), mu).blocked(t)
				for _, a := range patient {
					release(t, hold)
					hold = a.granted(t)
				}
				elsewhere.blocked(t)
				release(t, hold)
				latecomer.blocked(t)
				release(t, elsewhere.granted(t))
				release(t, latecomer.granted(t))
			})
		})
	}
}
