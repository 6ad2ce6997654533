package gocronlock_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/tierlock/tierlock/adapters/gocronlock"
	"github.com/tierlock/tierlock/internal/locktest"
	"github.com/tierlock/tierlock/internal/need"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zktest"
	"go.uber.org/goleak"
)

var _ gocron.Locker = (*gocronlock.Locker)(nil)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// process returns the locks of one more process, which linger where nobody sees to it that they do not.
func process(t *testing.T, srv *zktest.Server) *tier.Registry {
	t.Helper()
	return locktest.Dial(t, srv, tier.WithLinger(time.Hour))
}

func TestARunThatFindsTheLockTakenIsSkipped(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		one, other := gocronlock.NewLocker(process(t, srv), "/jobs"), gocronlock.NewLocker(process(t, srv), "/jobs")
		run := begin(t, one, "report")
		start := time.Now()
		for name, locker := range map[string]gocron.Locker{"the same process": one, "another process": other} {
			if _, err := locker.Lock(t.Context(), "report"); !errors.Is(err, tier.ErrLocked) || time.Since(start) > time.Second {
				t.Errorf("a run in %s: %v after %v, want ErrLocked at once", name, err, time.Since(start))
			}
		}
		end(t, begin(t, other, "another job"))
		end(t, run)
		end(t, begin(t, other, "report"))
	})
}

// The context of a run's caller may carry a hold of the same lock; a run is not to enter by it.
func TestARunIsAnOwnerOfItsOwn(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		locks := process(t, srv)
		hold := need.Get(locks.Mutex(tier.Name("/jobs", "report")).Acquire(t.Context()))(t)
		defer hold.Release()
		locker := gocronlock.NewLocker(locks, "/jobs")
		if _, err := locker.Lock(hold.Context(t.Context()), "report"); !errors.Is(err, tier.ErrLocked) {
			t.Errorf("a run under a hold of its lock: %v, want ErrLocked", err)
		}
	})
}

func TestWithWaitARunWaits(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		locks := process(t, srv)
		run := begin(t, gocronlock.NewLocker(locks, "/jobs"), "report")
		patient := gocronlock.NewLocker(process(t, srv), "/jobs", gocronlock.WithWait(time.Minute))
		start := time.Now()
		if _, err := patient.Lock(t.Context(), "report"); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Minute {
			t.Errorf("waited in vain for %v: %v, want a minute, DeadlineExceeded", time.Since(start), err)
		}
		time.AfterFunc(time.Second, func() { end(t, run) })
		end(t, begin(t, patient, "report"))
	})
}

func TestOnSlotIsToldOfRunsAndOfThoseThatAreSkipped(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		var told []error
		locker := gocronlock.NewLocker(process(t, srv), "/jobs", gocronlock.OnSlot(func(path string, err error) {
			if path != "/jobs/report" {
				t.Errorf("told of %s", path)
			}
			told = append(told, err)
		}))
		run := begin(t, locker, "report")
		if _, err := locker.Lock(t.Context(), "report"); len(told) != 2 || told[0] != nil || !errors.Is(told[1], tier.ErrLocked) {
			t.Errorf("told %v, want a run and %v", told, err)
		}
		end(t, run)
	})
}

func TestAtLeastKeepsTheLockAndNotTheWorker(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		one := gocronlock.NewLocker(process(t, srv), "/jobs", gocronlock.AtLeast(time.Second))
		other := gocronlock.NewLocker(process(t, srv), "/jobs", gocronlock.WithWait(time.Minute))
		start := time.Now()
		run := begin(t, one, "report")
		time.Sleep(time.Second / 4)
		end(t, run)
		if took := time.Since(start); took > time.Second/2 {
			t.Errorf("the worker was kept until %v", took)
		}
		next := begin(t, other, "report")
		if took := time.Since(start); took < time.Second || took > time.Second+time.Second/4 {
			t.Errorf("the next run began after %v, want a second", took)
		}
		end(t, next)
		synctest.Wait() // one has heard that its own lock is gone

		start = time.Now()
		run = begin(t, one, "report") // a long run leaves nothing to wait for
		time.Sleep(2 * time.Second)
		end(t, run)
		end(t, begin(t, other, "report"))
		if took := time.Since(start); took > 2*time.Second+time.Second/4 {
			t.Errorf("the run after a long one began after %v, want 2 s", took)
		}
	})
}

// When a scheduler is shut down, gocron ends the context of its jobs first, then waits for them.
func TestUnlockGivesTheLockUpWhateverItsContext(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		locker := gocronlock.NewLocker(process(t, srv), "/jobs")
		run := begin(t, locker, "report")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		locktest.WantErr(t, "Unlock", run.Unlock(ctx), nil)
		end(t, begin(t, gocronlock.NewLocker(process(t, srv), "/jobs"), "report"))
	})
}

func TestWhatGocronKeepsToItselfIsLogged(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		var log strings.Builder
		logger := slog.New(slog.NewTextHandler(&log, nil))
		locks := process(t, srv)
		locker := gocronlock.NewLocker(locks, "/jobs", gocronlock.WithLogger(logger), gocronlock.AtLeast(time.Hour))
		need.Get(locker.Lock(t.Context(), "report"))(t)
		if _, err := locker.Lock(t.Context(), "report"); err == nil {
			t.Error("a second run has the lock")
		}
		if log.Len() != 0 {
			t.Errorf("logged while all is as it should be: %s", &log)
		}
		locks.Close()
		synctest.Wait()
		if !strings.Contains(log.String(), `level=WARN msg="the lock of a job is lost`) || !strings.Contains(log.String(), "/jobs/report") {
			t.Errorf("logged about the loss: %q", &log)
		}
		log.Reset()
		if _, err := locker.Lock(t.Context(), "another job"); err == nil {
			t.Error("a closed registry has locks")
		}
		if !strings.Contains(log.String(), `level=WARN msg="job not run`) {
			t.Errorf("logged about a run that could not have its lock: %q", &log)
		}
	})
}

func TestALockThatIsLetGoIsNoLoss(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		var log strings.Builder
		locks := process(t, srv)
		locker := gocronlock.NewLocker(locks, "/jobs", gocronlock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		end(t, begin(t, locker, "report"))
		locks.Close()
		synctest.Wait()
		if log.Len() != 0 {
			t.Errorf("logged: %s", &log)
		}
	})
}

func begin(t *testing.T, locker gocron.Locker, name string) gocron.Lock {
	t.Helper()
	run, err := locker.Lock(t.Context(), name)
	if err != nil {
		t.Fatalf("Lock(%q): %v", name, err)
	}
	return run
}

func end(t *testing.T, run gocron.Lock) {
	t.Helper()
	locktest.WantErr(t, "Unlock", run.Unlock(t.Context()), nil)
}
