// Package slot has the common part of the adapters to schedulers. A run takes a lock, and keeps it for a minimum time. If the clock of
// another scheduler is late, that scheduler then finds the slot taken.
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

// A Rule says how a run acquires its lock, and for how long the run keeps it.
type Rule struct {
	Wait    time.Duration                // the limit of the wait for the lock; zero means no wait
	AtLeast time.Duration                // the minimum time from the acquisition to the release, even if the run is shorter
	Log     *slog.Logger                 // nil for slog.Default()
	OnSlot  func(path string, err error) // nil if there is no observer
}

// These are the outcomes of a slot in one process.
const (
	ran     = "run"
	skipped = "skipped" // another process has the lock, or leads
	failed  = "failed"  // perhaps no process runs the slot: the store did not answer, has refused, or is in a grace period
)

// Outcomes has all possible results of Outcome.
var Outcomes = [...]string{ran, skipped, failed}

// Outcome returns the outcome of a slot for which OnSlot is called with err.
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

// A Run is a run that holds its lock.
type Run struct {
	Hold  *tier.Hold
	until time.Time
}

// Begin acquires the lock as a separate owner, even if ctx carries a hold. Schedulers drop errors. Therefore Begin also logs why a run has
// no lock. If the lock is lost before [Run.End] has released it, the loss is logged as well.
func (r Rule) Begin(ctx context.Context, m *tier.Mutex) (*Run, error) {
	hold, err := r.acquire(tier.WithoutHold(ctx), m)
	begun := false
	defer func() {
		if hold != nil && !begun { // OnSlot has panicked, or has ended the goroutine
			hold.Release()
		}
	}()
	if ctx.Err() == nil { // otherwise this scheduler is stopping
		r.Tell(m.Path(), err)
	}
	if err != nil {
		level := slog.LevelWarn
		if errors.Is(err, tier.ErrLocked) || ctx.Err() != nil { // normal: another process runs the slot, or this scheduler is stopping
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

// Tell calls OnSlot with the path and the error of a slot.
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

// End releases the lock. If the minimum time has not passed, the lock is released later, in the background.
func (r *Run) End() error { return r.Hold.ReleaseAt(r.until) }

// OnLoss calls f in a separate goroutine if the lock is lost before hold is released.
func OnLoss(hold *tier.Hold, f func(err error)) {
	held := hold.Context(context.Background())
	context.AfterFunc(held, func() {
		if err := context.Cause(held); errors.Is(err, tier.ErrLost) {
			f(err)
		}
	})
}
