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
	"go.uber.org/goleak"

	"github.com/tierlock/tierlock/contrib/gocronlock"
	"github.com/tierlock/tierlock/internal/test/locktest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock/zktest"
)

var _ gocron.Locker = (*gocronlock.Locker)(nil)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// process returns the registry of a new process. Its locks linger by default, and the adapter has to prevent that.
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
			need.WantErr(t, "a run in "+name, need.ErrOf(locker.Lock(t.Context(), "report")), tier.ErrLocked)
			need.AtMost(t, "a run in "+name+" was refused after", time.Since(start), time.Second)
		}
		end(t, begin(t, other, "another job"))
		end(t, run)
		end(t, begin(t, other, "report"))
	})
}

// The context of a run's caller may carry a hold of the same lock. The run must not join that hold.
func TestARunIsAnOwnerOfItsOwn(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		locks := process(t, srv)
		hold := need.Get(locks.Mutex(tier.Name("/jobs", "report")).Acquire(t.Context()))(t)
		defer hold.Release()
		locker := gocronlock.NewLocker(locks, "/jobs")
		need.WantErr(t, "a run under a hold of its lock", need.ErrOf(locker.Lock(hold.Context(t.Context()), "report")), tier.ErrLocked)
	})
}

func TestWithWaitARunWaits(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		locks := process(t, srv)
		run := begin(t, gocronlock.NewLocker(locks, "/jobs"), "report")
		patient := gocronlock.NewLocker(process(t, srv), "/jobs", gocronlock.WithWait(time.Minute))
		start := time.Now()
		need.WantErr(t, "a wait in vain", need.ErrOf(patient.Lock(t.Context(), "report")), context.DeadlineExceeded)
		need.Equal(t, "waited in vain for", time.Since(start), time.Minute)
		time.AfterFunc(time.Second, func() { end(t, run) })
		end(t, begin(t, patient, "report"))
	})
}

func TestOnSlotIsToldOfRunsAndOfThoseThatAreSkipped(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		var told []error
		locker := gocronlock.NewLocker(process(t, srv), "/jobs", gocronlock.OnSlot(func(path string, err error) {
			need.Equal(t, "told of", path, "/jobs/report")
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
		need.AtMost(t, "the worker was kept until", time.Since(start), time.Second/2)
		next := begin(t, other, "report")
		need.Between(t, "the next run began after", time.Since(start), time.Second, time.Second+time.Second/4)
		end(t, next)
		synctest.Wait() // now the first process knows that its own lock was released

		start = time.Now()
		run = begin(t, one, "report") // after a run this long, no minimum time is left to wait for
		time.Sleep(2 * time.Second)
		end(t, run)
		end(t, begin(t, other, "report"))
		need.AtMost(t, "the run after a long one began after", time.Since(start), 2*time.Second+time.Second/4)
	})
}

// When gocron shuts down, it first cancels the context of its jobs and then waits for them. Unlock therefore has to work with a context
// that has ended.
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
		need.That(t, "a second run has the lock", need.ErrOf(locker.Lock(t.Context(), "report")) != nil)
		need.Equal(t, "logged while all is as it should be", log.String(), "")
		locks.Close()
		synctest.Wait()
		need.Has(t, "logged about the loss", log.String(), `level=WARN msg="lock of a running job lost`, "/jobs/report")
		log.Reset()
		need.That(t, "a closed registry has locks", need.ErrOf(locker.Lock(t.Context(), "another job")) != nil)
		need.Has(t, "logged about a run that could not have its lock", log.String(), `level=WARN msg="job skipped`)
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
		need.Equal(t, "logged", log.String(), "")
	})
}

func begin(t *testing.T, locker gocron.Locker, name string) gocron.Lock {
	t.Helper()
	return need.Get(locker.Lock(t.Context(), name))(t)
}

func end(t *testing.T, run gocron.Lock) {
	t.Helper()
	locktest.WantErr(t, "Unlock", run.Unlock(t.Context()), nil)
}
