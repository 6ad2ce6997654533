// Package slot has the common part of the adapters to schedulers: a run takes a lock and keeps it for a minimum time, so that a scheduler
// whose clock is late finds the slot taken.
package slot

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/tierlock/tierlock/election"
	"github.com/tierlock/tierlock/tier"
)

// A Rule says how a run acquires its lock, and for how long it keeps it.
type Rule struct {
	Wait    time.Duration                // for the lock; none if zero
	AtLeast time.Duration                // from getting the lock, however short the run is
	Log     *slog.Logger                 // slog.Default() if nil
	OnSlot  func(path string, err error) // nil without an observer
}

// These are the outcomes of a slot in one process.
const (
	ran     = "run"
	skipped = "skipped" // another process has the lock, or leads
	failed  = "failed"  // no process may have it: the store did not answer, refused, or is in a grace period
)

// Outcomes are all possible results of Outcome.
var Outcomes = [...]string{ran, skipped, failed}

// Outcome returns the outcome of a slot for which OnSlot gets err.
func Outcome(err error) string {
	waited, gracePeriod := (*tier.WaitError)(nil), (*tier.GracePeriodError)(nil)
	switch {
	case err == nil:
		return ran
	case errors.As(err, &gracePeriod):
		return failed
	case errors.As(err, &waited) && (waited.Here != nil || waited.Position > 0),
		errors.Is(err, tier.ErrLocked), errors.Is(err, election.ErrNotLeader):
		return skipped
	}
	return failed
}

// A Run holds the lock.
type Run struct {
	Hold  *tier.Hold
	until time.Time
}

// Begin acquires the lock as a separate owner, whatever hold ctx carries. Schedulers drop errors. Begin therefore also logs why a run has
// no lock, and the loss of the lock before [Run.End] has released it.
func (r Rule) Begin(ctx context.Context, m *tier.Mutex) (*Run, error) {
	hold, err := r.acquire(tier.WithoutHold(ctx), m)
	begun := false
	defer func() {
		if hold != nil && !begun { // OnSlot has panicked, or ended the goroutine
			hold.Release()
		}
	}()
	if ctx.Err() == nil { // else this scheduler stops
		r.Tell(m.Path(), err)
	}
	if err != nil {
		level := slog.LevelWarn
		if errors.Is(err, tier.ErrLocked) || ctx.Err() != nil { // as it should be: another process runs, or this scheduler stops
			level = slog.LevelDebug
		}
		r.log().Log(ctx, level, "job skipped: lock not acquired", "path", m.Path(), "error", err)
		return nil, err
	}
	OnLoss(hold, func(err error) {
		r.log().Warn("lock of a running job lost: another process may run it, too", "path", m.Path(), "token", hold.Token(), "error", err)
	})
	begun = true
	return &Run{hold, time.Now().Add(r.AtLeast)}, nil
}

// Tell calls OnSlot with the outcome of a slot.
func (r Rule) Tell(path string, err error) {
	if r.OnSlot != nil {
		r.OnSlot(path, err)
	}
}

func (r Rule) acquire(ctx context.Context, m *tier.Mutex) (*tier.Hold, error) {
	if r.Wait <= 0 {
		return m.TryAcquire(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, r.Wait)
	defer cancel()
	return m.Acquire(ctx)
}

func (r Rule) log() *slog.Logger { return cmp.Or(r.Log, slog.Default()) }

// End releases the lock, in the background if its minimum time is not over.
func (r *Run) End() error { return r.Hold.ReleaseAt(r.until) }

// OnLoss calls f in a goroutine of its own if the lock is lost before hold is released.
func OnLoss(hold *tier.Hold, f func(err error)) {
	held := hold.Context(context.Background())
	context.AfterFunc(held, func() {
		if err := context.Cause(held); errors.Is(err, tier.ErrLost) {
			f(err)
		}
	})
}
