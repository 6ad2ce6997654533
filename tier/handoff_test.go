package tier_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zktest"
)

// A stay is a run of turns of one process.
type stay struct {
	process    int
	begin, end time.Time
}

// crowd lets four goroutines in each of the processes take turns of one millisecond for
// some seconds of virtual time, and returns the stays, but for those at the edges.
func crowd(t *testing.T, mutexes ...*tier.Mutex) []stay {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	var (
		stays []stay // guarded by the lock under test
		wg    sync.WaitGroup
	)
	for i, mu := range mutexes {
		for range 4 {
			wg.Go(func() {
				for ctx.Err() == nil {
					hold := acquire(t, mu)
					if n := len(stays); n == 0 || stays[n-1].process != i {
						stays = append(stays, stay{process: i, begin: time.Now()})
					}
					time.Sleep(time.Millisecond)
					stays[len(stays)-1].end = time.Now()
					release(t, hold)
				}
			})
		}
	}
	wg.Wait()
	return stays[len(stays)/2 : len(stays)-2*len(mutexes)]
}

// By default a process keeps the lock for twenty times as long as it takes to give it
// to another one, so that it is in use for nineteen twentieths of the time and nobody
// waits longer than that needs.
func TestDefaultBudgetFollowsThePriceOfAHandOver(t *testing.T) { // I11
	metered(t, func(t *testing.T, s *zktest.Server, _ *meter, process func(...tier.Option) *tier.Mutex) {
		const price = 3 * time.Millisecond
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Stage == zktest.Request && (f.Op == zktest.OpMulti || f.Op == zktest.OpDelete) {
				return zktest.Delay(price)
			}
			return zktest.Pass
		})
		for _, s := range crowd(t, process(), process(), process()) {
			if d := s.end.Sub(s.begin); d < 19*price || d > 20*price+2*time.Millisecond {
				t.Errorf("process %d kept the lock for %v while others waited, want twenty times %v", s.process, d, price)
			}
		}
	})
}

// A fixed budget is kept whatever the price.
func TestFixedBudgetIsKept(t *testing.T) { // I11
	metered(t, func(t *testing.T, _ *zktest.Server, _ *meter, process func(...tier.Option) *tier.Mutex) {
		const budget = 7 * time.Millisecond
		for _, s := range crowd(t, process(tier.WithHandOff(budget)), process(tier.WithHandOff(budget))) {
			if d := s.end.Sub(s.begin); d < budget || d > budget+2*time.Millisecond {
				t.Errorf("process %d kept the lock for %v while another waited, want %v and at most two sections", s.process, d, budget)
			}
		}
	})
}
