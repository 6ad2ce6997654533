package slots

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tierlock/tierlock/tier"
)

// ErrDone means that no slot is due: the newest slot whose time has come was begun before, in this process or in another one.
var ErrDone = errors.New("the slot was begun before")

// A Run is a slot that [Job.Begin] has begun.
type Run struct {
	tenure  *tenure
	slot    Slot
	started time.Time
}

// Begin begins a slot in one of many processes. It is for a scheduler that has its own loop: call Begin in each process when the scheduler
// starts a run. In one process Begin returns a run. Do the work of the slot in this process, and then call [Run.End]. As now, pass
// time.Now(), or the time for which the scheduler planned the run. The slot is the newest slot of the schedule that is not after now. Begin
// and [Job.Run] use the same ledger: one process can use Begin, and another process Run.
//
// The error wraps [ErrDone] if the slot was begun before. The error wraps [tier.ErrLocked] if the lock is taken: another process is
// beginning this slot, or an earlier slot is still running. After any other error it is possible that the slot runs in no process. Examples
// of such errors are those of [tier.Mutex.TryAcquire], [tier.Mutex.Load] and [tier.Hold.Save], and an error that wraps [ErrNoSlot]. After
// every error this process does not have the lock.
//
// Begin never repeats a slot, and never catches up a missed slot. When Begin begins a later slot, it reports earlier slots that were missed
// or crashed as [Skipped]. [AfterCrash], [AfterError] and [CatchUp] have no effect on Begin.
//
// Begin does not wait for the lock. It waits for the store until ctx ends, but not longer than ten seconds; the error then wraps
// [tier.ErrUnavailable]. Use a mutex without [tier.WithLinger]: while a process keeps the idle lock, other processes get [tier.ErrLocked].
//
// If the slot was begun before, Begin sends one request. If the lock is taken, Begin sends two requests: a read of the ledger, and an
// attempt to get the lock. In rare cases another process begins and ends the slot between these two requests; Begin then sends four. Begin
// and End of a run together send six requests. On ZooKeeper these numbers are about twice as high, because [tier.Mutex.Load] sends a write
// before the read there.
func (j *Job) Begin(ctx context.Context, now time.Time) (run *Run, err error) {
	called := time.Now()
	ctx, now = tier.WithoutHold(ctx), now.UTC().Round(0) // without the caller's hold: each run acquires the lock for itself
	limited, cancel := context.WithTimeoutCause(ctx, patience, tier.ErrUnavailable)
	defer cancel()
	l, found, err := load(limited, j.mutex)
	if found {
		err = j.isDue(l.Slot, now) // most processes learn here that the slot was begun, and take no lock
	}
	if err != nil {
		return nil, err
	}
	hold, err := j.mutex.TryAcquire(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if run == nil { // run is also nil if the schedule or the function of OnSlot panics
			hold.Release()
		}
	}()
	t := &tenure{Job: j, hold: hold, ctx: hold.Context(ctx)}
	now = now.Add(time.Since(called)) // the time now, after the requests to the store
	slot, err := t.newest(now)
	if err != nil {
		return nil, err
	}
	return t.start(slot, now)
}

// patience is how long a run waits for a store that does not answer. A longer wait would keep a scheduler from stopping.
const patience = 10 * time.Second

// isDue returns an error if no slot has come since the last one.
func (j *Job) isDue(last, now time.Time) error {
	next, err := j.after(last)
	if err == nil && next.After(now) {
		return fmt.Errorf("slots: %s: slot %v: %w", j.mutex.Path(), last, ErrDone)
	}
	return err
}

// newest returns the slot to begin. It loads the ledger again, because another process may have begun the slot before this process got the
// lock.
func (t *tenure) newest(now time.Time) (Slot, error) {
	found, err := t.load()
	if err != nil {
		return Slot{}, err
	}
	last := t.ledger.Slot
	if !found {
		last = t.before(now)
	}
	if err := t.isDue(last, now); err != nil {
		return Slot{}, err
	}
	if t.ledger.State == begun {
		t.crashed()
	}
	due, _, err := t.due(last, now, 1)
	return Slot{Time: due, Attempt: 1}, cmp.Or(err, context.Cause(t.ctx)) // if ctx has ended, due may have stopped before the newest slot
}

// before returns a time after which exactly one slot comes until now: the newest one. If there is no slot until now, none comes between the
// result and now. A schedule only finds the next slot after a time, so before looks further and further back.
func (t *tenure) before(now time.Time) time.Time {
	for back := time.Minute; back > 0; back *= 2 { // until it overflows
		last := now.Add(-back)
		next, err := t.after(last)
		if err != nil {
			return last
		}
		for !next.After(now) {
			after, err := t.after(next)
			if err != nil || after.After(now) {
				return last
			}
			last, next = next, after
		}
	}
	return now
}

// Context returns the context for the work of the slot. It carries the hold ([tier.HoldFrom]). It ends when the ctx of [Job.Begin] ends,
// when the lock is lost, and at [Run.End].
func (r *Run) Context() context.Context { return r.tenure.ctx }

// Slot returns the slot that was begun.
func (r *Run) Slot() Slot { return r.slot }

// End writes the outcome of the slot into the ledger, and releases the lock. Pass the error of the work, or nil; End returns it. If the
// lock was lost before, or End could not write the outcome, the error of End also says so, and the slot counts as crashed. A second End
// returns [tier.ErrReleased].
//
// Call End once, also if the work panics. Without End the lock stays taken, and no further slot runs in any process. End may be called
// after the ctx of [Job.Begin] has ended. End sends two requests, and waits for their answers until the lock is lost.
func (r *Run) End(err error) error {
	hold := r.tenure.hold
	if err := hold.Err(); errors.Is(err, tier.ErrReleased) {
		return err
	}
	defer hold.Release()
	return r.end(err).Err
}
