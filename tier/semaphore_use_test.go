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

// With crowds in four processes, permits are in use for most of the time, in equal shares.
func TestPermitsAreInUseMostOfTheTime(t *testing.T) {
	const n, section, trip = 10, time.Millisecond, time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t, zktest.Config{Latency: trip / 2})
		atMost(t, srv, n)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		var (
			mu    sync.Mutex // guards the field below
			turns [4]int
			wg    sync.WaitGroup
		)
		begun := time.Now()
		for p := range turns {
			s := process(t, srv).Semaphore(pool, n, tier.WithHandOff(20*time.Millisecond))
			for range 50 {
				wg.Go(func() {
					for {
						permits, err := s.Acquire(ctx, 1)
						if err != nil {
							return
						}
						time.Sleep(section)
						mu.Lock()
						turns[p]++
						mu.Unlock()
						giveBack(t, permits)
					}
				})
			}
		}
		wg.Wait()
		most := int(n * time.Since(begun) / section)
		all := 0
		for p, got := range turns {
			all += got
			if got < most/len(turns)*3/4 {
				t.Errorf("process %d had %d turns of %d, want its share", p, got, most)
			}
		}
		if all*100 < most*85 {
			t.Errorf("%d turns of %d, want 85 %%", all, most)
		}
	})
}
