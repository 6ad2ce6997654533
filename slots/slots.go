package slots

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/tierlock/tierlock/tier"
)

// A Schedule returns the time of the first slot after a time, and the zero time if there is none. It gets times in UTC, and has to give
// the same answer in every process. Any function will do, such as the Next method of a schedule of robfig/cron.
type Schedule func(after time.Time) time.Time

// Every returns the schedule of the times origin, origin + interval, and so on, also before the origin. All processes have to use the same
// origin, such as the zero time. It panics if interval is not positive.
func Every(interval time.Duration, origin time.Time) Schedule {
	if interval <= 0 {
		panic(fmt.Sprintf("slots: interval %v", interval))
	}
	offset := origin.Sub(origin.Truncate(interval)) // Truncate counts from the zero time
	return func(after time.Time) time.Time {
		next := after.Truncate(interval).Add(offset)
		if !next.After(after) {
			next = next.Add(interval)
		}
		return next
	}
}

// A Slot is one time of a schedule, as the job gets it.
type Slot struct {
	Time    time.Time
	Late    time.Duration // by how much the run starts after Time, by the clock of this process
	Attempt int           // 1, and more after a crash or an error
	Token   int64         // the fencing token of the lock
}

// A Policy says what becomes of a slot whose process crashed during the run.
type Policy int

// The policies for [AfterCrash].
const (
	Skip  Policy = iota // the slot does not run again
	Retry               // the next process runs it again
)

// All is for [CatchUp]: no slot is missed.
const All = math.MaxInt

// An Option is for [New].
type Option func(*Job)

// AfterCrash says whether a slot that was begun and not ended runs again. The default is [Skip]: a slot runs at most once. With [Retry] a
// job that crashes its process does so again: look at [Slot.Attempt].
func AfterCrash(p Policy) Option { return func(j *Job) { j.afterCrash = p } }

// AfterError runs a slot whose run returned an error again, retries times at most. The first pause is backoff, and each further one twice
// the one before. A slot that comes due during a pause waits for its end. By default a failed slot does not run again.
func AfterError(retries int, backoff time.Duration) Option {
	return func(j *Job) { j.retries, j.backoff = retries, backoff }
}

// CatchUp says how many slots run that came due while no process ran, or while a run took longer than the interval: the newest n of them,
// the oldest first. The default is 1. With 0 none runs, and with [All] every one.
func CatchUp(n int) Option { return func(j *Job) { j.catchUp = n } }

// OnSlot calls f for each [Event], in the goroutine of Run: f delays the slots if it blocks.
func OnSlot(f func(Event)) Option { return func(j *Job) { j.onSlot = f } }

// A Kind is what happened to a slot.
type Kind string

// What happened to a slot.
const (
	Retried  Kind = "retried"   // it begins again after a crash or an error
	CaughtUp Kind = "caught-up" // it begins, although it came due earlier
	Ran      Kind = "ran"       // its run returned nil
	Failed   Kind = "failed"    // its run returned an error
	Skipped  Kind = "skipped"   // it does not run, or not again
	Lost     Kind = "lost"      // the lock was lost during its run
)

// An Event is what happened to a slot.
type Event struct {
	Kind  Kind
	Slot  Slot
	Count int           // of Skipped: how many slots were skipped; Slot is the newest of them
	Took  time.Duration // of Ran, Failed and Lost: how long the run took
	Err   error         // of Failed and Lost
}

// A Job is a schedule under a lock. It is safe for concurrent use.
type Job struct {
	mutex      *tier.Mutex
	schedule   Schedule
	afterCrash Policy
	retries    int
	backoff    time.Duration
	catchUp    int
	onSlot     func(Event)
	now        func() time.Time // in tests, that of a clock which goes wrong
}

// New returns the job whose slots the lock guards. It sends no request. The lock must be for this job alone.
func New(mutex *tier.Mutex, schedule Schedule, opts ...Option) *Job {
	j := &Job{mutex: mutex, schedule: schedule, catchUp: 1, onSlot: func(Event) {}, now: time.Now}
	for _, opt := range opts {
		opt(j)
	}
	return j
}

// ErrNoSlot means that the schedule has no further slot.
var ErrNoSlot = errors.New("the schedule has no further slot")

// errMoved ends a tenure: the lock was lost, or a revoke was requested.
var errMoved = errors.New("the lock goes to another process")

// Run waits for the lock and runs the slots, one after another, until ctx ends. It then returns the cause of ctx, after f has returned. It
// returns earlier with an error that wraps [ErrNoSlot], and with one that retrying cannot fix: a schedule that goes backwards, a ledger
// of another version, a missing permission. If f panics, so does Run, and the slot counts as crashed.
//
// The context of f carries the hold ([tier.HoldFrom]) and ends when ctx ends or the lock is lost. An error of f does not end Run. Run gives
// the lock to another process between two slots when that is asked for, as tierlock revoke does.
func (j *Job) Run(ctx context.Context, f func(ctx context.Context, slot Slot) error) error {
	for {
		hold, err := j.mutex.Acquire(ctx)
		switch {
		case ctx.Err() != nil:
			if err == nil {
				hold.Release()
			}
			return context.Cause(ctx)
		case errors.Is(err, tier.ErrWaitLimit):
			continue
		case err != nil:
			return err
		}
		err = j.hold(ctx, hold, f)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !errors.Is(err, errMoved):
			return err
		}
	}
}

// A tenure is the time for which this process has the lock.
type tenure struct {
	*Job
	hold   *tier.Hold
	ctx    context.Context // ends with the lock
	ledger ledger
}

// hold runs slots while the process has the lock. To acquire the lock for each slot would cost a transfer, and each process would load the
// ledger.
func (j *Job) hold(ctx context.Context, hold *tier.Hold, f func(context.Context, Slot) error) error {
	defer hold.Release()
	t := &tenure{Job: j, hold: hold, ctx: hold.Context(ctx)}
	err := t.begin()
	for err == nil {
		var slot Slot
		var how Kind
		if slot, how, err = t.next(); err == nil {
			err = t.run(slot, how, f)
		}
	}
	if errors.Is(hold.Err(), tier.ErrLost) || errors.Is(err, tier.ErrUnknown) {
		return errMoved
	}
	return err
}

// begin takes over the ledger. The first process of all writes one: slots count from then on.
func (t *tenure) begin() (err error) {
	var found bool
	if t.ledger, found, err = load(t.ctx, t.mutex); err != nil {
		return err
	}
	if !found {
		return t.note(ledger{Slot: t.now().UTC().Round(0), State: skipped})
	}
	next, err := t.after(t.ledger.Slot)
	if err == nil && !next.Equal(t.ledger.Next) {
		slog.Warn("slots: another process had another schedule; this one counts from the next slot on",
			"path", t.mutex.Path(), "last", t.ledger.Slot, "next", next, "before", t.ledger.Next)
	}
	if l := t.ledger; l.State == begun && t.afterCrash == Skip {
		l.State = skipped
		if err := t.note(l); err != nil {
			return err
		}
		t.onSlot(Event{Kind: Skipped, Slot: Slot{Time: l.Slot, Attempt: l.Attempt}, Count: 1})
	}
	return nil
}

// note writes the ledger, also after the end of the context of Run: only a lock that is lost makes that fail.
func (t *tenure) note(l ledger) (err error) {
	if l.Next, err = t.after(l.Slot); err != nil && !errors.Is(err, ErrNoSlot) {
		return err
	}
	if err = l.save(context.WithoutCancel(t.ctx), t.hold); err == nil {
		t.ledger = l
	}
	return err
}

// after is the slot after a time.
func (t *tenure) after(last time.Time) (time.Time, error) {
	switch next := t.schedule(last.UTC()).Round(0); {
	case next.IsZero():
		return next, fmt.Errorf("slots: %s: after %v: %w", t.mutex.Path(), last, ErrNoSlot)
	case !next.After(last):
		return next, fmt.Errorf("slots: %s: the schedule goes backwards: %v comes after %v", t.mutex.Path(), next, last)
	default:
		return next, nil
	}
}

// next waits until a slot is due, and returns how it comes to run if it is not simply its time.
func (t *tenure) next() (slot Slot, how Kind, err error) {
	l := t.ledger
	slot = Slot{Time: l.Slot, Attempt: l.Attempt + 1}
	switch {
	case l.State == begun: // its process crashed
		return slot, Retried, t.wait(time.Time{})
	case !l.Retry.IsZero():
		return slot, Retried, t.wait(l.Retry)
	}
	due, missed, err := t.due(l.Slot)
	if err == nil {
		err = t.wait(due)
	}
	if missed {
		how = CaughtUp
	}
	return Slot{Time: due, Attempt: 1}, how, err
}

// due is the slot to run after the last one. It leaves out all slots that were missed but the newest.
func (t *tenure) due(last time.Time) (due time.Time, missed bool, err error) {
	due, err = t.after(last)
	now := t.now()
	if missed = err == nil && !due.After(now); !missed || t.catchUp == All {
		return due, missed, err
	}
	var newest []time.Time
	var left time.Time // the newest that does not run
	count := 0
	for ; err == nil && !due.After(now) && t.ctx.Err() == nil; due, err = t.after(due) {
		if newest = append(newest, due); len(newest) > t.catchUp {
			left, newest = newest[0], newest[1:]
			count++
		}
	}
	if count > 0 {
		t.onSlot(Event{Kind: Skipped, Slot: Slot{Time: left, Late: now.Sub(left)}, Count: count})
	}
	if len(newest) > 0 {
		return newest[0], true, nil
	}
	return due, false, err
}

// longest is after how long a wait looks at the clock again, which may be set.
const longest = time.Minute

// wait waits for a time. It ends when the lock is lost, when ctx ends, and when another process asks for the lock.
func (t *tenure) wait(until time.Time) error {
	for {
		timer := time.NewTimer(min(until.Sub(t.now()), longest))
		select {
		case <-t.ctx.Done():
			timer.Stop()
			return context.Cause(t.ctx)
		case <-t.hold.RevokeRequested():
			timer.Stop()
			return errMoved
		case <-timer.C:
		}
		if !until.After(t.now()) && t.ctx.Err() == nil {
			return nil
		}
	}
}

// run begins a slot, runs it, and ends it. It writes no outcome of a run that has lost the lock, or that ctx has ended.
func (t *tenure) run(slot Slot, how Kind, f func(context.Context, Slot) error) error {
	slot.Token, slot.Late = t.hold.Token(), max(t.now().Sub(slot.Time), 0)
	l := ledger{Slot: slot.Time, State: begun, Attempt: slot.Attempt}
	if err := t.note(l); err != nil {
		return err
	}
	if how != "" {
		t.onSlot(Event{Kind: how, Slot: slot})
	}
	started := time.Now()
	err := f(t.ctx, slot)
	e := Event{Kind: Ran, Slot: slot, Took: time.Since(started), Err: err}
	l.State = done
	if err != nil {
		e.Kind, l.State = Failed, failed
		if slot.Attempt <= t.retries {
			l.Retry = t.now().UTC().Round(0).Add(t.backoff << min(slot.Attempt-1, 10))
		}
	}
	if err == nil || t.ctx.Err() == nil {
		if err := t.note(l); err != nil {
			e.Kind, e.Err = Lost, errors.Join(e.Err, err)
		}
	} else if loss := t.hold.Err(); loss != nil {
		e.Kind, e.Err = Lost, errors.Join(err, loss)
	}
	t.onSlot(e)
	if e.Kind == Lost {
		return e.Err
	}
	return nil
}
