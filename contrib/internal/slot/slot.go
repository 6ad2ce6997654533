// Package slot has the common part of the adapters to schedulers. If the schedule of a job is known, the ledger of package slots says which
// slots were begun. Otherwise a run takes a lock, and keeps it for a minimum time. If the clock of another scheduler is late, that
// scheduler then finds the lock taken.
package slot

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/tierlock/tierlock/election"
	"github.com/tierlock/tierlock/slots"
	"github.com/tierlock/tierlock/tier"
)

// A Rule says how a run acquires its lock, and for how long the run keeps it.
type Rule struct {
	Wait    time.Duration                // the limit of the wait for the lock; zero means no wait
	AtLeast time.Duration                // the minimum time from the acquisition to the release, even if the run is shorter
	Log     *slog.Logger                 // nil for slog.Default()
	OnSlot  func(path string, err error) // nil if there is no observer
	Now     func() time.Time             // nil for time.Now; replaced in tests by a clock that is wrong
}

// These are the outcomes of a slot in one process.
const (
	ran     = "run"
	skipped = "skipped" // another process has begun the slot, has the lock, or leads
	failed  = "failed"  // perhaps no process runs the slot: the store did not answer, has refused, or is in a grace period; or the job failed
	missed  = "missed"  // no process runs the slot, or its process died
)

// Outcomes has all possible results of Outcome and OutcomeOf.
var Outcomes = [...]string{ran, skipped, failed, missed}

// Outcome returns the outcome of a slot for which OnSlot is called with err.
func Outcome(err error) string {
	waited, gracePeriod := (*tier.WaitError)(nil), (*tier.GracePeriodError)(nil)
	switch {
	case err == nil:
		return ran
	case errors.As(err, &gracePeriod):
		return failed
	case errors.As(err, &waited) && (waited.Here != nil || waited.Position > 0),
		errors.Is(err, slots.ErrDone), errors.Is(err, tier.ErrLocked), errors.Is(err, election.ErrNotLeader):
		return skipped
	}
	return failed
}

// OutcomeOf returns the outcome of slots that an event of package slots describes, and the number of these slots. The number is 0 if the
// event is not the end of a slot.
func OutcomeOf(e slots.Event) (outcome string, count int) {
	switch e.Kind {
	case slots.Ran:
		return ran, 1
	case slots.Failed, slots.Lost:
		return failed, 1
	case slots.Skipped:
		return missed, e.Count
	}
	return "", 0
}

// A Run is a run that holds its lock.
type Run struct {
	Hold  *tier.Hold
	until time.Time
	slot  *slots.Run // nil if the job has no schedule
}

// Begin acquires the lock as a separate owner, even if ctx carries a hold. If the job has a schedule, Begin does so only for a slot that
// was not begun before. Schedulers drop errors. Therefore Begin also logs why a run has no lock. If the lock is lost before [Run.End] has
// released it, the loss is logged as well.
func (r Rule) Begin(ctx context.Context, m *tier.Mutex, schedule slots.Schedule) (*Run, error) {
	run, err := r.begin(tier.WithoutHold(ctx), m, schedule)
	begun := false
	defer func() {
		if run != nil && !begun { // OnSlot has panicked, or has ended the goroutine
			run.Hold.Release()
		}
	}()
	if ctx.Err() == nil { // not reported while this scheduler stops, which ends ctx
		r.Tell(m.Path(), err)
	}
	if err != nil {
		level := slog.LevelWarn
		// The last case is a scheduler that stops.
		if normal := errors.Is(err, slots.ErrDone) || errors.Is(err, tier.ErrLocked); normal || ctx.Err() != nil {
			level = slog.LevelDebug
		}
		r.log().Log(ctx, level, "job skipped: lock not acquired", "path", m.Path(), "error", err)
		return nil, err
	}
	token := run.Hold.Token()
	OnLoss(run.Hold, func(err error) {
		r.log().Warn("lock of a running job lost: another process may run the job, too", "path", m.Path(), "token", token, "error", err)
	})
	begun = true
	return run, nil
}

func (r Rule) begin(ctx context.Context, m *tier.Mutex, schedule slots.Schedule) (*Run, error) {
	if schedule == nil {
		hold, err := r.acquire(ctx, m)
		if err != nil {
			return nil, err
		}
		return &Run{Hold: hold, until: time.Now().Add(r.AtLeast)}, nil
	}
	now := time.Now
	if r.Now != nil {
		now = r.Now
	}
	slot, err := slots.New(m, schedule).Begin(ctx, now())
	if err != nil {
		return nil, err
	}
	return &Run{Hold: tier.HoldFrom(slot.Context(), m), slot: slot}, nil
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

// End records the outcome of the job in the ledger, and releases the lock. Without a schedule there is no ledger; if the minimum time has
// not passed, the lock is then released later, in the background.
func (r *Run) End(err error) error {
	if r.slot != nil {
		return r.slot.End(err)
	}
	return r.Hold.ReleaseAt(r.until)
}

// OnLoss calls f in a separate goroutine if the lock is lost before hold is released.
func OnLoss(hold *tier.Hold, f func(err error)) {
	held := hold.Context(context.Background()) // ends with the hold
	context.AfterFunc(held, func() {
		if err := context.Cause(held); errors.Is(err, tier.ErrLost) {
			f(err)
		}
	})
}
