package cronlock_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/tierlock/tierlock/adapters/cronlock"
	"github.com/tierlock/tierlock/internal/locktest"
	"github.com/tierlock/tierlock/internal/need"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zktest"
	"go.uber.org/goleak"
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
		if n := runs.Load(); n != 1 {
			t.Errorf("%d runs, want 1", n)
		}
		cronlock.Job(locks.Mutex("/jobs/report"), func(context.Context) { runs.Add(1) }).Run()
		if n := runs.Load(); n != 2 {
			t.Error("the lock is still taken after the run")
		}
	})
}

func TestOnSlotIsToldOfRunsAndOfThoseThatAreSkipped(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		var told []error
		onSlot := cronlock.OnSlot(func(path string, err error) {
			if path != "/jobs/report" {
				t.Errorf("told of %s", path)
			}
			told = append(told, err)
		})
		job := func(f func(context.Context)) cron.Job {
			return cronlock.Job(locktest.Dial(t, srv).Mutex("/jobs/report"), f, onSlot)
		}
		job(func(context.Context) { job(func(context.Context) {}).Run() }).Run()
		if len(told) != 2 || told[0] != nil || !errors.Is(told[1], tier.ErrLocked) {
			t.Errorf("told %v, want a run and ErrLocked", told)
		}
	})
}

func TestAtLeastKeepsTheLockAndNotTheScheduler(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		start := time.Now()
		cronlock.Job(locktest.Dial(t, srv).Mutex("/jobs/report"), func(context.Context) {}, cronlock.AtLeast(time.Minute)).Run()
		if took := time.Since(start); took > time.Second {
			t.Errorf("the run kept the scheduler for %v", took)
		}
		cronlock.Job(locktest.Dial(t, srv).Mutex("/jobs/report"), func(context.Context) {}, cronlock.WithWait(time.Hour)).Run()
		if took := time.Since(start); took < time.Minute || took > time.Minute+time.Second {
			t.Errorf("the next run is over after %v, want a minute", took)
		}
	})
}

func TestTheContextOfAJobEndsWithItsLock(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		var log strings.Builder
		locks := locktest.Dial(t, srv)
		mu := locks.Mutex("/jobs/report")
		cronlock.Job(mu, func(ctx context.Context) {
			if hold := tier.HoldFrom(ctx, mu); hold == nil || hold.Token() == 0 {
				t.Error("the context does not carry the hold")
			}
			time.AfterFunc(time.Second, func() { locks.Close() })
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), tier.ErrLost) {
				t.Errorf("the context ended with %v, want ErrLost", context.Cause(ctx))
			}
		}, cronlock.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))).Run()
		synctest.Wait()
		if !strings.Contains(log.String(), `level=WARN msg="the lock of a job is lost`) {
			t.Errorf("logged about the loss: %q", &log)
		}
	})
}

// cron.Recover may be outside of the wrapper.
func TestAPanicLetsTheLockGo(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		mu := locktest.Dial(t, srv).Mutex("/jobs/report")
		chain := cron.NewChain(cron.Recover(cron.DiscardLogger), cronlock.Locked(mu))
		chain.Then(cron.FuncJob(func() { panic("a job's") })).Run()
		hold := need.Get(mu.TryAcquire(t.Context()))(t)
		locktest.WantErr(t, "Release", hold.Release(), nil)
	})
}
