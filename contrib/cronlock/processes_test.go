package cronlock_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/tierlock/tierlock/contrib/cronlock"
	"github.com/tierlock/tierlock/internal/test/locktest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// Two processes whose clocks differ run the same jobs, with AtLeast and without. Only AtLeast prevents the process with the late clock
// from running a slot again.
func TestWithAtLeastNoSlotRunsTwiceWhereClocksDiffer(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		const (
			jobs  = 8 // each job has one slot per second
			slots = 10
		)
		var mu sync.Mutex // guards the runs
		runs := map[string]map[string]int{"with": {}, "without": {}}
		for _, ahead := range []time.Duration{60 * time.Millisecond, 0} {
			locks, scheduler := locktest.Dial(t, srv), cron.New()
			for job := range jobs {
				s := seconds{phase: time.Duration(job) * time.Second / jobs, ahead: ahead}
				for kind, opts := range map[string][]cronlock.Option{"with": {cronlock.AtLeast(700 * time.Millisecond)}, "without": nil} {
					scheduler.Schedule(s, cronlock.Job(locks.Mutex(fmt.Sprintf("/%s-%d", kind, job)), func(context.Context) {
						mu.Lock()
						defer mu.Unlock()
						runs[kind][fmt.Sprintf("%d, slot %d", job, s.slot(time.Now()))]++
					}, opts...))
				}
			}
			scheduler.Start()
			defer func() { <-scheduler.Stop().Done() }()
		}
		time.Sleep(slots * time.Second)
		mu.Lock()
		defer mu.Unlock()
		for kind, want := range map[string]int{"with": 1, "without": 2} { // another result would mean that the clocks do not differ
			need.AtLeast(t, kind+": slots that were run", len(runs[kind]), jobs*(slots-1))
			most := 0
			for _, n := range runs[kind] {
				most = max(most, n)
			}
			need.Equal(t, kind+": the most runs of a slot", most, want)
		}
	})
}

// Intervals begin when a process starts. Therefore each process runs all intervals, unless AtLeast is as long as the interval.
func TestIntervalsAreRunByEachProcessUnlessAtLeastFillsThem(t *testing.T) {
	const every, intervals = 10 * time.Second, 10
	for atLeast, want := range map[time.Duration]int{0: 2 * intervals, every - time.Second: intervals} {
		locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
			var runs atomic.Int64
			for range 2 {
				scheduler, mutex := cron.New(), locktest.Dial(t, srv).Mutex("/job")
				job := cronlock.Job(mutex, func(context.Context) { runs.Add(1) }, cronlock.AtLeast(atLeast))
				need.Get(scheduler.AddJob("@every 10s", job))(t)
				scheduler.Start()
				defer func() { <-scheduler.Stop().Done() }()
				time.Sleep(every / 2)
			}
			time.Sleep(intervals*every - every/4)
			need.Equal(t, fmt.Sprintf("runs with AtLeast(%v)", atLeast), int(runs.Load()), want)
		})
	}
}

// A seconds is a schedule with one slot per second, on a clock that is ahead of the real one.
type seconds struct{ phase, ahead time.Duration }

func (s seconds) Next(t time.Time) time.Time {
	shift := s.phase - s.ahead
	return t.Add(-shift).Truncate(time.Second).Add(time.Second + shift)
}

func (s seconds) slot(t time.Time) int64 { return t.Add(s.ahead - s.phase).Round(time.Second).Unix() }
