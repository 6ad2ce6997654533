package slot_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tierlock/tierlock/contrib/internal/slot"
	"github.com/tierlock/tierlock/election"
	"github.com/tierlock/tierlock/internal/test/locktest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/slots"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock/zktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOutcomesOfEvents(t *testing.T) {
	for kind, want := range map[slots.Kind]string{
		slots.Ran: "1 run", slots.Failed: "1 failed", slots.Lost: "1 failed", slots.Skipped: "7 missed",
		slots.Retried: "0 ", slots.CaughtUp: "0 ",
	} {
		outcome, n := slot.OutcomeOf(slots.Event{Kind: kind, Count: 7})
		need.Equal(t, string(kind), fmt.Sprint(n, " ", outcome), want)
		need.That(t, string(kind)+" is not among the outcomes", n == 0 || slices.Contains(slot.Outcomes[:], outcome))
	}
}

var minutes = slots.Every(time.Minute, time.Time{})

// A job with a schedule needs the ledger. If the store does not answer, the scheduler has to go on after a while.
func TestOutcomesOfASlotOfASchedule(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		var told []string
		rule := slot.Rule{Log: slog.New(slog.DiscardHandler), OnSlot: func(path string, err error) {
			told = append(told, path+" "+slot.Outcome(err))
		}}
		mu, late := locktest.Dial(t, srv).Mutex("/jobs/a"), rule
		late.Now = func() time.Time { return time.Now().Add(-time.Minute) }
		run := need.Get(rule.Begin(t.Context(), mu, minutes))(t)
		need.WantErr(t, "Begin of a late process", need.ErrOf(late.Begin(t.Context(), mu, minutes)), slots.ErrDone)
		time.Sleep(time.Minute)
		need.WantErr(t, "Begin while the run goes on", need.ErrOf(rule.Begin(t.Context(), mu, minutes)), tier.ErrLocked)
		failed := errors.New("no paper")
		need.WantErr(t, "End", run.End(failed), failed)
		srv.Freeze()
		start := time.Now()
		need.WantErr(t, "Begin without the store", need.ErrOf(rule.Begin(t.Context(), mu, minutes)), tier.ErrUnavailable)
		need.AtMost(t, "the scheduler was kept for", time.Since(start), 10*time.Second)
		srv.Unfreeze()
		need.List(t, "reported slots", told, "/jobs/a run", "/jobs/a skipped", "/jobs/a skipped", "/jobs/a failed")
	})
}

// If no process runs a slot, its outcome is failed, which raises an alarm. If another process runs it, the outcome is skipped.
func TestOutcomesOfASlot(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
		locks, other := locktest.Dial(t, srv), locktest.Dial(t, srv)
		var told []string
		rule := slot.Rule{Wait: time.Second, Log: slog.New(slog.DiscardHandler), OnSlot: func(path string, err error) {
			told = append(told, path+" "+slot.Outcome(err))
		}}
		begin := func(ctx context.Context, rule slot.Rule) {
			if run, err := rule.Begin(ctx, locks.Mutex("/jobs/a"), nil); err == nil {
				need.OK(t, run.End(nil))
			}
		}
		stopped, stop := context.WithCancel(t.Context())
		stop()
		atOnce := rule
		atOnce.Wait = 0

		begin(t.Context(), rule)
		begin(stopped, rule)
		theirs := need.Get(other.Mutex("/jobs/a").Acquire(t.Context()))(t)
		begin(t.Context(), rule)
		begin(t.Context(), atOnce)
		need.OK(t, theirs.Release())
		own := need.Get(locks.Mutex("/jobs/a").Acquire(t.Context()))(t)
		begin(t.Context(), rule)
		need.OK(t, own.Release())
		srv.Freeze()
		begin(t.Context(), rule)
		srv.Unfreeze()
		locks.Close()
		begin(t.Context(), atOnce)
		want := []string{"/jobs/a run", "/jobs/a skipped", "/jobs/a skipped", "/jobs/a skipped", "/jobs/a failed", "/jobs/a failed"}
		need.List(t, "reported slots", told, want...)
	})
	ends := map[string]func(){"panics": func() { panic("a test") }, "ends the goroutine": runtime.Goexit}
	need.Each(t, ends, func(t *testing.T, end func()) {
		locktest.Bubble(t, func(t *testing.T, srv *zktest.Server) {
			for path, schedule := range map[string]slots.Schedule{"/jobs/a": nil, "/jobs/b": minutes} {
				mu, over := locktest.Dial(t, srv).Mutex(path), make(chan struct{})
				go func() {
					defer close(over)
					defer func() { _ = recover() }()
					slot.Rule{OnSlot: func(string, error) { end() }}.Begin(t.Context(), mu, schedule)
				}()
				<-over
				need.OK(t, need.Get(mu.TryAcquire(t.Context()))(t).Release()) // shows that no lock is left
			}
		})
	})
	gracePeriod := &tier.GracePeriodError{Until: time.Now()}
	for err, want := range map[error]string{
		fmt.Errorf("elector: %w", election.ErrNotLeader):  "skipped",
		fmt.Errorf("begun: %w", slots.ErrDone):            "skipped",
		fmt.Errorf("%w: %w", gracePeriod, tier.ErrLocked): "failed",
	} {
		got := slot.Outcome(err)
		need.That(t, fmt.Sprintf("%v: %q, want %q", err, got, want), got == want && slices.Contains(slot.Outcomes[:], got))
	}
}
