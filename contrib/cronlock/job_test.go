package cronlock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robfig/cron/v3"
	"go.uber.org/goleak"

	"github.com/tierlock/tierlock/contrib/cronlock"
	"github.com/tierlock/tierlock/internal/test/locktest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock/zktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// work is a job that takes a second and counts its runs.
func work(runs *atomic.Int64) cron.Job {
	return cron.FuncJob(func() {
		runs.Add(1)
		time.Sleep(time.Second)
	})
}

func TestARunThatFindsTheLockTakenIsSkipped(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		locks := locktest.Dial(t, srv)
		var runs atomic.Int64
		for _, mu := range []*tier.Mutex{locks.Mutex("/jobs/report"), locks.Mutex("/jobs/report"), locktest.Dial(t, srv).Mutex("/jobs/report")} {
			go cron.NewChain(cronlock.Locked(mu)).Then(work(&runs)).Run()
			time.Sleep(time.Second / 4)
		}
		time.Sleep(time.Minute)
		need.Equal(t, "runs", runs.Load(), 1)
		cronlock.Job(locks.Mutex("/jobs/report"), func(context.Context) { runs.Add(1) }).Run()
		need.That(t, "the lock is still taken after the run", runs.Load() == 2)
	})
}

func TestOnSlotIsToldOfRunsAndOfThoseThatAreSkipped(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		var told []error
		onSlot := cronlock.OnSlot(func(path string, err error) {
			need.Equal(t, "told of", path, "/jobs/report")
			told = append(told, err)
		})
		job := func(f func(context.Context)) cron.Job {
			return cronlock.Job(locktest.Dial(t, srv).Mutex("/jobs/report"), f, onSlot)
		}
		job(func(context.Context) { job(func(context.Context) {}).Run() }).Run()
		need.That(t, fmt.Sprintf("%v, want a run and ErrLocked", told), len(told) == 2 && told[0] == nil && errors.Is(told[1], tier.ErrLocked))
	})
}

func TestAtLeastKeepsTheLockAndNotTheScheduler(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		start := time.Now()
		cronlock.Job(locktest.Dial(t, srv).Mutex("/jobs/report"), func(context.Context) {}, cronlock.AtLeast(time.Minute)).Run()
		need.AtMost(t, "the run kept the scheduler for", time.Since(start), time.Second)
		cronlock.Job(locktest.Dial(t, srv).Mutex("/jobs/report"), func(context.Context) {}, cronlock.WithWait(time.Hour)).Run()
		need.Between(t, "the next run is over after", time.Since(start), time.Minute, time.Minute+time.Second)
	})
}

func TestTheContextOfAJobEndsWithItsLock(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		var log strings.Builder
		locks := locktest.Dial(t, srv)
		mu := locks.Mutex("/jobs/report")
		cronlock.Job(mu, func(ctx context.Context) {
			hold := tier.HoldFrom(ctx, mu)
			need.That(t, "the context does not carry the hold", hold != nil && hold.Token() != 0)
			time.AfterFunc(time.Second, func() { locks.Close() })
			<-ctx.Done()
			need.WantErr(t, "the end of the context", context.Cause(ctx), tier.ErrLost)
		}, cronlock.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))).Run()
		synctest.Wait()
		need.Has(t, "logged about the loss", log.String(), `level=WARN msg="lock of a running job lost`)
	})
}

// cron.Recover may be outside of the wrapper. The lock therefore has to be released before the panic gets there.
func TestAPanicLetsTheLockGo(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		mu := locktest.Dial(t, srv).Mutex("/jobs/report")
		chain := cron.NewChain(cron.Recover(cron.DiscardLogger), cronlock.Locked(mu))
		chain.Then(cron.FuncJob(func() { panic("a job's") })).Run()
		locktest.WantErr(t, "Release", need.Get(mu.TryAcquire(t.Context()))(t).Release(), nil)
	})
}
