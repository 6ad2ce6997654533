package gocronlock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
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

var minutes = slots.Every(time.Minute, time.Time{})

// A late is the locker of a process whose clock is late: its runs begin later.
type late struct {
	gocron.Locker
	by time.Duration
}

func (l late) Lock(ctx context.Context, name string) (gocron.Lock, error) {
	time.Sleep(l.by)
	return l.Locker.Lock(ctx, name)
}

// The clocks of three processes differ by five seconds. The job takes a millisecond. AtLeast prevents a second run only for the time that
// it is given. With the schedule, no slot runs twice.
func TestWithAScheduleNoSlotRunsTwiceWhereClocksDiffer(t *testing.T) {
	const many = 20
	type row struct {
		opt  gocronlock.Option
		want int // runs of each slot
	}
	need.Each(t, map[string]row{
		"a schedule": {gocronlock.WithSchedule("report", minutes), 1},
		"AtLeast":    {gocronlock.AtLeast(2 * time.Second), 3},
	}, func(t *testing.T, c row) {
		locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
			var mu sync.Mutex // guards the fields below
			runs := make(map[time.Time]int)
			outcomes := make(map[string]int)
			for _, by := range []time.Duration{0, 2500 * time.Millisecond, 5 * time.Second} {
				count := gocronlock.OnSlot(func(_ string, err error) {
					mu.Lock()
					defer mu.Unlock()
					switch {
					case err == nil:
						outcomes["run"]++
					case errors.Is(err, slots.ErrDone):
						outcomes["begun before"]++
					default:
						outcomes[err.Error()]++
					}
				})
				locker := gocronlock.NewLocker(process(t, srv), "/jobs", c.opt, count, gocronlock.WithClock(by))
				scheduler := need.Get(gocron.NewScheduler(gocron.WithDistributedLocker(late{locker, by})))(t)
				defer func() { need.OK(t, scheduler.Shutdown()) }()
				need.Get(scheduler.NewJob(gocron.CronJob("* * * * *", false), gocron.NewTask(func() {
					mu.Lock()
					runs[time.Now().Truncate(time.Minute)]++
					mu.Unlock()
					time.Sleep(time.Millisecond)
				}), gocron.WithName("report")))(t)
				scheduler.Start()
			}
			time.Sleep(many*time.Minute + 30*time.Second)
			mu.Lock()
			defer mu.Unlock()
			need.Equal(t, "slots that were run", len(runs), many)
			for slot, n := range runs {
				need.Equal(t, fmt.Sprint("runs of ", slot), n, c.want)
			}
			need.Equal(t, "runs in calls of OnSlot", outcomes["run"], c.want*many)
			need.Equal(t, "skips in calls of OnSlot", outcomes["begun before"], (3-c.want)*many)
		})
	})
}

// A process may die during a run, or just after it. The slot does not run again in a process whose clock reaches it later.
func TestWithAScheduleNoSlotRunsAgainAfterItsProcessDied(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		schedule, atLeast := gocronlock.WithSchedule("report", minutes), gocronlock.AtLeast(time.Hour)
		locker := func(locks *tier.Registry, opts ...gocronlock.Option) *gocronlock.Locker {
			return gocronlock.NewLocker(locks, "/jobs", append(opts, gocronlock.WithLogger(slog.New(slog.DiscardHandler)))...)
		}
		time.Sleep(time.Minute)
		for job, c := range map[string]struct {
			opt  gocronlock.Option
			want error
		}{"report": {schedule, slots.ErrDone}, "another job": {atLeast, nil}} {
			dying := process(t, srv)
			run := begin(t, locker(dying, c.opt), job)
			end(t, run)
			dying.Close()
			run, err := locker(process(t, srv), c.opt, gocronlock.WithClock(5*time.Second)).Lock(t.Context(), job)
			need.WantErr(t, job+": Lock", err, c.want)
			if err == nil {
				end(t, run)
			}
		}
		time.Sleep(time.Minute)
		dying := process(t, srv)
		begin(t, locker(dying, schedule), "report")
		dying.Close()
		other := locker(process(t, srv), schedule)
		need.WantErr(t, "Lock after a crash", need.ErrOf(other.Lock(t.Context(), "report")), slots.ErrDone)
		time.Sleep(time.Minute)
		end(t, begin(t, other, "report"))
	})
}
