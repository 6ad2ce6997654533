package tier_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tierlock/tierlock/tier"
)

// Four processes with goroutines that want one to all of the permits, counted outside of the store.
func TestSemaphoreOnARealServer(t *testing.T) {
	const n, path = 5, "/limits/real"
	addr := realServer(t)
	ctx, cancel := context.WithTimeout(soon(t), 3*time.Second)
	defer cancel()
	var (
		inUse atomic.Int64
		turns [4][n]atomic.Int64
		wg    sync.WaitGroup
		all   []*tier.Registry
	)
	for p := range turns {
		locks := dial(t, addr)
		all = append(all, locks)
		s := locks.Semaphore(path, n, tier.WithHandOff(5*time.Millisecond))
		for g := range 2 * n {
			k := g%n + 1
			wg.Go(func() {
				for {
					permits, err := s.Acquire(ctx, k)
					if err != nil {
						if ctx.Err() == nil {
							t.Error(err)
						}
						return
					}
					if now := inUse.Add(int64(k)); now > n {
						t.Errorf("%d permits are in use, want %d at most", now, n)
					}
					turns[p][k-1].Add(1)
					inUse.Add(-int64(k))
					if err := permits.Release(); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	for p := range turns {
		for k := range turns[p] {
			if turns[p][k].Load() == 0 {
				t.Errorf("process %d never had %d permits", p, k+1)
			}
		}
	}
	giveBack(t, take(t, all[0].Semaphore(path, n), n)) // nothing is left
	for _, locks := range all {
		if err := locks.Shutdown(soon(t)); err != nil {
			t.Error(err)
		}
	}
}
