package tier_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
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

// While others wait, a process keeps the lock for the budget and no longer, whatever it
// costs to give it away.
func TestBudgetIsKept(t *testing.T) { // I11
	for _, c := range []struct {
		name   string
		opts   []tier.Option
		budget time.Duration
	}{
		{"default", nil, 20 * time.Millisecond},
		{"short", []tier.Option{tier.WithHandOff(7 * time.Millisecond)}, 7 * time.Millisecond},
		{"shorter than a turn for each", []tier.Option{tier.WithHandOff(time.Millisecond)}, time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			zkMetered(t, func(t *testing.T, s *zktest.Server, _ *zkMeter, process func(...tier.Option) *tier.Mutex) {
				s.Intercept(func(f *zktest.Frame) zktest.Action {
					if f.Stage == zktest.Request && f.Op == zktest.OpMulti && !heartbeat(f) {
						return zktest.Delay(3 * time.Millisecond)
					}
					return zktest.Pass
				})
				for _, s := range crowd(t, process(c.opts...), process(c.opts...), process(c.opts...)) {
					if d := s.end.Sub(s.begin); d < c.budget || d > c.budget+2*time.Millisecond {
						t.Errorf("process %d kept the lock for %v while others waited, want %v and at most two sections", s.process, d, c.budget)
					}
				}
			})
		})
	}
}

// Looking costs a read and a watch, which fires whenever the queue changes.
func TestNobodyLooksForOthersWhereNobodyWaitsLocally(t *testing.T) {
	zkMetered(t, func(t *testing.T, _ *zktest.Server, m *zkMeter, process func(...tier.Option) *tier.Mutex) {
		mu := process()
		release(t, acquire(t, mu)) // creates the parents
		for _, c := range []struct {
			name  string
			take  func(context.Context) (*tier.Hold, error)
			lists int
		}{{"Acquire", mu.Acquire, 1}, {"TryAcquire", mu.TryAcquire, 2}} {
			m.take()
			hold, err := c.take(soon(t))
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			lists := slices.DeleteFunc(m.take(), func(op zktest.Op) bool { return op != zktest.OpGetChildren2 })
			if len(lists) != c.lists {
				t.Errorf("%s: the queue was listed %d times, want %d", c.name, len(lists), c.lists)
			}
			release(t, hold)
		}
	})
}

// In strict order it is of no use to know who waits elsewhere.
func TestStrictOrderLooksForNobody(t *testing.T) {
	zkMetered(t, func(t *testing.T, _ *zktest.Server, m *zkMeter, process func(...tier.Option) *tier.Mutex) {
		mu := process(tier.WithHandOff(0))
		hold := acquire(t, mu)
		m.take()
		for range 3 {
			next := start(soon(t), mu).blocked(t)
			if ops := m.take(); len(ops) > 0 {
				t.Fatalf("sent while somebody waits: %v", ops)
			}
			release(t, hold)
			hold = next.granted(t)
			synctest.Wait()
			if ops := m.take(); !slices.Equal(sorted(ops), sorted([]zktest.Op{zktest.OpMulti, zktest.OpGetChildren2})) {
				t.Fatalf("sent for the turn: %v, want one transaction and one look at the queue", ops)
			}
		}
		release(t, hold)
	})
}

func sorted(ops []zktest.Op) []zktest.Op { return slices.Sorted(slices.Values(ops)) }
