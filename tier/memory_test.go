package tier_test

import (
	"math"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
)

// All goroutines that wait share one contender. Each waiting goroutine takes less than 400 bytes in addition to its stack.
func TestWaiterIsCheap(t *testing.T) {
	metered(t, func(t *testing.T, s *memory.Server, _ *meter, process func(...tier.Option) *tier.Mutex) {
		const waiters = 20_000
		mu, ctx := process(), soon(t)
		hold := acquire(t, process())
		done := make(chan struct{}, 3*waiters)

		never := make(chan struct{})
		idlers := func() {
			for range waiters {
				go func() { <-never; done <- struct{}{} }()
			}
		}
		idlers() // allocates goroutines that the runtime uses again; otherwise the second measurement would look cheaper
		idle := heapOf(idlers)
		waiting := heapOf(func() {
			for range waiters {
				go func() {
					if hold, err := mu.Acquire(ctx); err != nil {
						t.Error(err)
					} else {
						release(t, hold)
					}
					done <- struct{}{}
				}()
			}
		})
		wantQueue(t, s, "with all the goroutines that wait", 2)
		each := (waiting - idle) / waiters
		t.Logf("%d B for each waiter", each)
		need.AtMost(t, "bytes for each waiter", each, 400)
		close(never)
		release(t, hold)
		for range 3 * waiters {
			<-done
		}
	})
}

// When the last user of a path has left, the process drops all state of the path, also the alarm for long waits.
func TestContentionLeavesNothing(t *testing.T) { // I10
	metered(t, func(t *testing.T, _ *memory.Server, m *meter, process func(...tier.Option) *tier.Mutex) {
		const n = 2000
		mu, ctx := process(), soon(t)
		each := heapOf(func() {
			for range n {
				hold := need.Get(mu.Acquire(ctx))(t)
				wait := start(ctx, mu).blocked(t)
				release(t, hold)
				release(t, wait.granted(t))
				m.take()
			}
		}) / n
		if t.Logf("%d B each time", each); each > 1000 { // the runtime removes stopped timers from its memory only a few at a time
			t.Errorf("%d B are left each time, want no more than 1000", each)
		}
	})
}

// heapOf calls f and waits until all goroutines are blocked. It returns by how much the heap has grown.
func heapOf(f func()) int64 {
	before := heap()
	f()
	synctest.Wait()
	return heap() - before
}

// heap returns the size of the heap once it has stopped shrinking. That may take a while, because a goroutine of the runtime cleans up.
func heap() int64 {
	least := int64(math.MaxInt64)
	for same := 0; same < 5; same++ {
		runtime.GC()
		var m runtime.MemStats
		if runtime.ReadMemStats(&m); int64(m.HeapAlloc) < least {
			least, same = int64(m.HeapAlloc), 0
		}
	}
	return least
}
