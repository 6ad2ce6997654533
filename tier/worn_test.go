package tier_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zktest"
)

// wornFrom is the sequence number from which on a path is to be made anew.
const wornFrom = 1 << 30

// wear takes the lock and gives the node after its own this number.
func wear(t *testing.T, s *zktest.Server, mu *tier.Mutex, number int32) *tier.Hold {
	t.Helper()
	hold := acquire(t, mu)
	s.SetSequence(mu.Path(), number)
	return hold
}

// Each process waits outside the queue while the other one has its turn, where nobody sees it; and each has somebody to
// hand on to at any time.
func TestOnAWornPathNobodyIsKeptWaitingByHandOffs(t *testing.T) {
	const budget = 20 * time.Millisecond
	for _, opts := range [][]tier.Option{{}, {tier.WithHandOff(0)}, {tier.WithRounds()}} {
		zkMetered(t, func(t *testing.T, s *zktest.Server, _ *zkMeter, process func(...tier.Option) *tier.Mutex) {
			mutexes := []*tier.Mutex{process(opts...), process(opts...)}
			release(t, wear(t, s, mutexes[0], wornFrom-1))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			var wg sync.WaitGroup
			last := []time.Time{time.Now(), time.Now()} // turns; guarded by the lock under test
			for i, mu := range mutexes {
				for range 4 {
					wg.Go(func() {
						for ctx.Err() == nil {
							hold := acquire(t, mu)
							if away := time.Since(last[i]); away > 2*budget {
								t.Errorf("process %d was away for %v", i, away)
							}
							time.Sleep(time.Millisecond)
							last[i] = time.Now()
							release(t, hold)
						}
					})
				}
			}
			wg.Wait()
		})
	}
}

func TestNodeOfAWornPathDoesNotLinger(t *testing.T) {
	zkMetered(t, func(t *testing.T, s *zktest.Server, _ *zkMeter, process func(...tier.Option) *tier.Mutex) {
		mu := process(tier.WithLinger(time.Minute))
		before := wear(t, s, process(), wornFrom)
		next := start(soon(t), mu).blocked(t)
		release(t, before)
		release(t, next.granted(t))
		if synctest.Wait(); s.Exists(mu.Path()) {
			t.Errorf("the path is there, with %q", s.Children(mu.Path()))
		}
	})
}
