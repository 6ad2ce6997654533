package gocronlock_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/tierlock/tierlock/contrib/gocronlock"
	"github.com/tierlock/tierlock/internal/test/locktest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/slots"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// Intervals begin when a process starts. Therefore each process runs all intervals, unless a schedule or a leader decides which slots there
// are.
func TestAJobOfIntervalsIsRunByEachProcessUnlessItHasAScheduleOrALeader(t *testing.T) {
	const every, intervals = 10 * time.Second, 10
	type row struct {
		exclusion func(t *testing.T, locks *tier.Registry) (opt gocron.SchedulerOption, end func())
		runs      int
	}
	need.Each(t, map[string]row{
		"a locker": {func(_ *testing.T, locks *tier.Registry) (gocron.SchedulerOption, func()) {
			return gocron.WithDistributedLocker(gocronlock.NewLocker(locks, "/jobs")), func() {}
		}, 2 * intervals},
		"a locker with a schedule": {func(_ *testing.T, locks *tier.Registry) (gocron.SchedulerOption, func()) {
			schedule := gocronlock.WithSchedule("job", slots.Every(every, time.Time{}))
			return gocron.WithDistributedLocker(gocronlock.NewLocker(locks, "/jobs", schedule)), func() {}
		}, intervals},
		"an elector": {func(t *testing.T, locks *tier.Registry) (gocron.SchedulerOption, func()) {
			elector := gocronlock.NewElector(locks, "/elections/jobs")
			return gocron.WithDistributedElector(elector), func() { need.OK(t, elector.Close()) }
		}, intervals},
	}, func(t *testing.T, c row) {
		locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
			var runs atomic.Int64
			for range 2 {
				opt, end := c.exclusion(t, process(t, srv))
				defer end()
				scheduler := need.Get(gocron.NewScheduler(opt))(t)
				defer func() { need.OK(t, scheduler.Shutdown()) }()
				need.Get(scheduler.NewJob(gocron.DurationJob(every), gocron.NewTask(func() { runs.Add(1) }), gocron.WithName("job")))(t)
				scheduler.Start()
				time.Sleep(every / 2)
			}
			time.Sleep(intervals*every - every/4)
			need.Equal(t, "runs", int(runs.Load()), c.runs)
		})
	})
}
