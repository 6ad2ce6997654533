package tier_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tierlock/tierlock/tier"
)

// Four processes with goroutines that want one to all of the permits, counted outside of the store: each gets them.
func TestSemaphoreOnARealServer(t *testing.T) {
	const n, path = 5, "/limits/real"
	addr := realServer(t)
	ctx, end := soon(t), time.Now().Add(2*time.Second)
	var (
		inUse atomic.Int64
		wg    sync.WaitGroup
		all   []*tier.Registry
	)
	for range 4 {
		locks := zkDial(t, addr)
		all = append(all, locks)
		s := locks.Semaphore(path, n, tier.WithHandOff(5*time.Millisecond))
		for g := range 2 * n {
			k := g%n + 1
			wg.Go(func() {
				for first := true; first || time.Now().Before(end); first = false {
					permits, err := s.Acquire(ctx, k)
					if err != nil {
						t.Errorf("%d permits: %v", k, err)
						return
					}
					if now := inUse.Add(int64(k)); now > n {
						t.Errorf("%d permits are in use, want %d at most", now, n)
					}
					inUse.Add(-int64(k))
					if err := permits.Release(); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	giveBack(t, take(t, all[0].Semaphore(path, n), n)) // nothing is left
	for _, locks := range all {
		if err := locks.Shutdown(soon(t)); err != nil {
			t.Error(err)
		}
	}
}
