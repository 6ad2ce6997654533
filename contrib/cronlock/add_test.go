package cronlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/tierlock/tierlock/contrib/cronlock"
	"github.com/tierlock/tierlock/internal/test/locktest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/slots"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// The clocks of three processes differ by five seconds: with a late clock, runs begin later. The job takes a millisecond. AtLeast prevents
// a second run only for the time that it is given. With Add, no slot runs twice.
func TestWithAddNoSlotRunsTwiceWhereClocksDiffer(t *testing.T) {
	const many = 20
	type row struct {
		add  func(*cron.Cron, *tier.Mutex, func(context.Context), ...cronlock.Option) (cron.EntryID, error)
		want int // runs of each slot
	}
	need.Each(t, map[string]row{
		"Add": {func(c *cron.Cron, m *tier.Mutex, f func(context.Context), opts ...cronlock.Option) (cron.EntryID, error) {
			return cronlock.Add(c, "* * * * *", m, f, opts...)
		}, 1},
		"AtLeast": {func(c *cron.Cron, m *tier.Mutex, f func(context.Context), opts ...cronlock.Option) (cron.EntryID, error) {
			return c.AddJob("* * * * *", cronlock.Job(m, f, append(opts, cronlock.AtLeast(2*time.Second))...))
		}, 3},
	}, func(t *testing.T, c row) {
		locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
			var mu sync.Mutex // guards the fields below
			runs := make(map[time.Time]int)
			skips := 0
			for _, by := range []time.Duration{0, 2500 * time.Millisecond, 5 * time.Second} {
				late := func(job cron.Job) cron.Job {
					return cron.FuncJob(func() {
						time.Sleep(by)
						job.Run()
					})
				}
				scheduler := cron.New(cron.WithChain(late))
				count := cronlock.OnSlot(func(_ string, err error) {
					mu.Lock()
					defer mu.Unlock()
					if errors.Is(err, slots.ErrDone) {
						skips++
					}
				})
				need.Get(c.add(scheduler, locktest.Dial(t, srv).Mutex("/jobs/report"), func(context.Context) {
					mu.Lock()
					runs[time.Now().Truncate(time.Minute)]++
					mu.Unlock()
					time.Sleep(time.Millisecond)
				}, count, cronlock.WithClock(by)))(t)
				scheduler.Start()
				defer func() { <-scheduler.Stop().Done() }()
			}
			time.Sleep(many*time.Minute + 30*time.Second)
			mu.Lock()
			defer mu.Unlock()
			need.Equal(t, "slots that were run", len(runs), many)
			for slot, n := range runs {
				need.Equal(t, fmt.Sprint("runs of ", slot), n, c.want)
			}
			need.Equal(t, "skips in calls of OnSlot", skips, (3-c.want)*many)
		})
	})
}

// The intervals of "@every" begin when a process starts. With Add, the ledger counts the same intervals in all processes.
func TestWithAddOneProcessRunsEachInterval(t *testing.T) {
	const every, intervals = 10 * time.Second, 10
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		var runs atomic.Int64
		for range 2 {
			scheduler := cron.New()
			scheduler.Start()
			mutex := locktest.Dial(t, srv).Mutex("/job")
			need.Get(cronlock.Add(scheduler, "@every 10s", mutex, func(context.Context) { runs.Add(1) }))(t) // to one that runs
			defer func() { <-scheduler.Stop().Done() }()
			time.Sleep(every / 2)
		}
		time.Sleep(intervals*every - every/4)
		need.Equal(t, "runs", int(runs.Load()), intervals)
	})
}

// The ledger counts slots in the time zone of the cron. If it used UTC, 2 o'clock would come after the run on the day on which summer time
// begins, and this run would belong to the slot of the day before.
func TestSlotsAreInTheZoneOfTheCron(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		london, runs := need.Get(time.LoadLocation("Europe/London"))(t), 0
		for _, day := range []int{25, 26} {
			time.Sleep(time.Until(time.Date(2000, 3, day, 2, 0, 0, 0, london)))
			locks, c := locktest.Dial(t, srv), cron.New(cron.WithLocation(london))
			id := need.Get(cronlock.Add(c, "0 2 * * *", locks.Mutex("/job"), func(context.Context) { runs++ }))(t)
			c.Entry(id).WrappedJob.Run()
			locks.Close()
		}
		need.Equal(t, "runs on two days", runs, 2)
	})
}

// If a job panics, its slot is not done. The lock is free for the next slot.
func TestAddRecordsAPanicAsAFailure(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		mu := locktest.Dial(t, srv).Mutex("/jobs/report")
		scheduler := cron.New(cron.WithChain(cron.Recover(cron.DiscardLogger)))
		runs := 0
		need.Get(cronlock.Add(scheduler, "* * * * *", mu, func(context.Context) {
			if runs++; runs == 1 {
				panic("a job's")
			}
		}))(t)
		scheduler.Start()
		defer func() { <-scheduler.Stop().Done() }()
		time.Sleep(90 * time.Second)
		need.Has(t, "the ledger", string(need.Get(mu.Load(t.Context()))(t).Data), `"state":"failed"`)
		time.Sleep(time.Minute)
		need.Has(t, "the ledger", string(need.Get(mu.Load(t.Context()))(t).Data), `"state":"done"`)
	})
}

func TestAddRefusesAWrongSpec(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		scheduler := cron.New()
		_, err := cronlock.Add(scheduler, "every day", locktest.Dial(t, srv).Mutex("/jobs/report"), func(context.Context) {})
		need.That(t, "no error", err != nil)
		need.Empty(t, "entries", scheduler.Entries())
	})
}
