package gocronlock_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/jonboulle/clockwork"
	"github.com/tierlock/tierlock/adapters/gocronlock"
	"github.com/tierlock/tierlock/internal/locktest"
	"github.com/tierlock/tierlock/internal/need"
	"github.com/tierlock/tierlock/zktest"
)

// Two processes with clocks that differ run the same jobs, with AtLeast and without. Only AtLeast keeps the process whose
// clock is late from running a slot again.
func TestWithAtLeastNoSlotRunsTwiceWhereClocksDiffer(t *testing.T) {
	const (
		skew     = 60 * time.Millisecond
		atLeast  = 700 * time.Millisecond
		interval = time.Second
		jobs     = 8 // each once in an interval
		slots    = 10
	)
	for name, c := range map[string]struct {
		opts []gocronlock.Option
		most int // runs of a slot
	}{"with": {[]gocronlock.Option{gocronlock.AtLeast(atLeast)}, 1}, "without": {nil, 2}} {
		t.Run(name, func(t *testing.T) {
			locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
				var mu sync.Mutex // guards the runs
				runs := make(map[string]int)
				for _, ahead := range []time.Duration{skew, 0} {
					clock := shifted{clockwork.NewRealClock(), ahead}
					locker := gocronlock.NewLocker(process(t, srv), "/jobs", c.opts...)
					scheduler := need.Get(gocron.NewScheduler(gocron.WithClock(clock), gocron.WithDistributedLocker(locker)))(t)
					for job := range jobs {
						phase := time.Duration(job) * interval / jobs // of the job's slots
						work := func() {
							mu.Lock()
							defer mu.Unlock()
							runs[fmt.Sprintf("%d, slot %d", job, clock.Now().Add(-phase).Round(interval).Unix())]++
						}
						start := clock.Now().Truncate(interval).Add(2*interval + phase)
						need.Get(scheduler.NewJob(gocron.DurationJob(interval), gocron.NewTask(work), gocron.WithName(fmt.Sprint(job)),
							gocron.WithStartAt(gocron.WithStartDateTime(start))))(t)
					}
					scheduler.Start()
					defer func() {
						locktest.WantErr(t, "Shutdown", scheduler.Shutdown(), nil)
					}()
				}
				time.Sleep(slots * interval)
				mu.Lock()
				defer mu.Unlock()
				if len(runs) < jobs*(slots-3) {
					t.Errorf("%d slots were run, want %d in each interval", len(runs), jobs)
				}
				most := 0
				for _, n := range runs {
					most = max(most, n)
				}
				if most != c.most {
					t.Errorf("a slot was run %d times, want %d at most; if it is less, the clocks do not differ", most, c.most)
				}
			})
		})
	}
}

// A shifted clock is ahead of the real one.
type shifted struct {
	clockwork.Clock
	ahead time.Duration
}

func (c shifted) Now() time.Time { return c.Clock.Now().Add(c.ahead) }
