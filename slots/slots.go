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

// A Schedule returns the time of the first slot after a given time. If there is none, it returns the zero time. The given times are in UTC.
// For the same time, a schedule has to return the same slot in every process. For example, use the method Next of a schedule of
// robfig/cron.
type Schedule func(after time.Time) time.Time

// Every returns a schedule with a slot at origin, and one slot per interval before and after origin. All processes have to use the same
// origin, for example the zero time. Every panics if interval is not positive.
func Every(interval time.Duration, origin time.Time) Schedule {
	if interval <= 0 {
		panic(fmt.Sprintf("slots: interval %v", interval))
	}
	offset := origin.Sub(origin.Truncate(interval)) // Truncate rounds down to a multiple of interval since the zero time
	return func(after time.Time) time.Time {
		next := after.Truncate(interval).Add(offset)
		if !next.After(after) {
			next = next.Add(interval)
		}
		return next
	}
}

// A Slot is one time of a schedule. The job gets it as an argument.
type Slot struct {
	Time    time.Time
	Late    time.Duration // how long after Time the run starts, by the clock of this process
	Attempt int           // 1 for the first run, and more after a crash or an error
	Token   int64         // the fencing token of the lock
}

// A Policy says what happens to a slot if the process crashes during the run of the slot.
type Policy int

// The policies for [AfterCrash].
const (
	Skip  Policy = iota // the slot does not run again
	Retry               // the next process runs it again
)

// All is an argument of [CatchUp]: with All, every missed slot runs.
const All = math.MaxInt

// An Option is an option of [New].
type Option func(*Job)

// AfterCrash decides whether a slot runs again if it was begun but did not end. The default is [Skip]: a slot runs at most once. Caution:
// with [Retry], a job that crashes its process is run again, and may crash one process after another. Let the job check [Slot.Attempt].
func AfterCrash(p Policy) Option { return func(j *Job) { j.afterCrash = p } }

// AfterError runs a slot again if its run returned an error. The parameter retries is the maximum number of further runs. The pause before
// the first further run is backoff, and each later pause is twice as long as the pause before it. If another slot comes due during a pause,
// it waits until this slot has ended. By default a failed slot does not run again.
func AfterError(retries int, backoff time.Duration) Option {
	return func(j *Job) { j.retries, j.backoff = retries, backoff }
}

// CatchUp sets how many missed slots run. A slot is missed if it comes due while no process runs, or while the run of an earlier slot takes
// longer than the interval. The newest n of the missed slots run, in the order of their times. The default is 1. With 0 no missed slot
// runs, and with [All] every missed slot runs.
func CatchUp(n int) Option { return func(j *Job) { j.catchUp = n } }

// OnSlot sets a function f that Run and Begin call for each [Event]. If f blocks, it delays the slots. For metrics, use the method
// SlotEvent of tierprom or tierotel as f.
func OnSlot(f func(Event)) Option { return func(j *Job) { j.onSlot = f } }

// A Kind is a kind of [Event].
type Kind string

// These constants are the kinds of an [Event].
const (
	Started  Kind = "started"   // a run of the slot begins
	Retried  Kind = "retried"   // the slot begins again after a crash or an error
	CaughtUp Kind = "caught-up" // the slot begins late, because it was missed
	Ran      Kind = "ran"       // the run of the slot returned nil
	Failed   Kind = "failed"    // the run of the slot returned an error
	Skipped  Kind = "skipped"   // the slot does not run, or does not run again
	Lost     Kind = "lost"      // the lock was lost during the run of the slot
)

// An Event describes what happened to a slot.
type Event struct {
	Kind  Kind
	Path  string // of the lock
	Slot  Slot
	Next  time.Time     // of Started: the time of the slot after this one; the zero time if there is none
	Count int           // of Skipped: how many slots were skipped; Slot is the newest of them
	Took  time.Duration // of Ran, Failed and Lost: how long the run took
	Err   error         // of Failed and Lost
}

// A Job runs the slots of a schedule under a lock. Its methods may be called concurrently.
type Job struct {
	mutex      *tier.Mutex
	schedule   Schedule
	afterCrash Policy
	retries    int
	backoff    time.Duration
	catchUp    int
	onSlot     func(Event)
	now        func() time.Time // replaced in tests by a clock that is wrong
}

// New returns a job that runs the slots of a schedule under the lock of mutex. It sends no request. Do not use the lock for anything else.
func New(mutex *tier.Mutex, schedule Schedule, opts ...Option) *Job {
	j := &Job{mutex: mutex, schedule: schedule, catchUp: 1, onSlot: func(Event) {}, now: time.Now}
	for _, opt := range opts {
		opt(j)
	}
	return j
}

// report calls the function of OnSlot.
func (j *Job) report(e Event) {
	e.Path = j.mutex.Path()
	j.onSlot(e)
}

// ErrNoSlot means that the schedule has no further slot.
var ErrNoSlot = errors.New("the schedule has no further slot")

// errMoved ends a tenure. It means that the lock was lost, or that another process asked for it.
var errMoved = errors.New("the lock goes to another process")

// Run waits for the lock, and then runs the slots one after another until ctx ends. When ctx has ended, Run waits until f has returned, and
// returns the cause of ctx. Run returns earlier if the schedule has no further slot; the error then wraps [ErrNoSlot]. It also returns
// earlier if there is an error that retrying cannot fix. Examples are a schedule that goes backwards, a ledger of another version, a
// missing permission, a closed registry, and a Redis server that may evict the ledger. If f panics, Run panics, and the slot counts as
// crashed.
//
// The context of f carries the hold ([tier.HoldFrom]). This context ends when ctx ends or when the lock is lost. An error of f does not end
// Run. If another process asks for the lock, for example through "tierlock revoke", Run gives it the lock between two slots.
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

// A tenure is the time during which this process has the lock.
type tenure struct {
	*Job
	hold   *tier.Hold
	ctx    context.Context // ends when the lock is lost or released
	ledger ledger
}

// hold runs slots as long as the process has the lock. If the process released the lock after each slot, the next slot would cost a
// transfer of the lock, and each process would have to load the ledger.
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

// begin loads the ledger. If there is none, begin writes the first ledger, and only slots after the present time run.
func (t *tenure) begin() error {
	found, err := t.load()
	if err != nil {
		return err
	}
	if !found {
		return t.note(ledger{Slot: t.now().UTC().Round(0), State: skipped})
	}
	if l := t.ledger; l.State == begun && t.afterCrash == Skip {
		l.State = skipped
		if err := t.note(l); err != nil {
			return err
		}
		t.crashed()
	}
	return nil
}

// load loads the ledger. If it is the ledger of another schedule, load logs a warning. If the store may evict the ledger, load returns an
// error.
func (t *tenure) load() (found bool, err error) {
	if err := lasts(t.hold); err != nil {
		return false, err
	}
	if t.ledger, found, err = load(t.ctx, t.mutex); err != nil || !found {
		return found, err
	}
	next, err := t.after(t.ledger.Slot)
	if err == nil && !next.Equal(t.ledger.Next) {
		slog.Warn("slots: another process has used another schedule; the schedule of this process applies from the next slot on",
			"path", t.mutex.Path(), "last", t.ledger.Slot, "next", next, "before", t.ledger.Next)
	}
	return true, nil
}

// crashed reports that the slot in the ledger was begun by a process that died, and that the slot does not run again.
func (t *tenure) crashed() {
	t.report(Event{Kind: Skipped, Slot: Slot{Time: t.ledger.Slot, Attempt: t.ledger.Attempt}, Count: 1})
}

// note writes the ledger, even if the context of Run has ended, but not after the loss of the lock.
func (t *tenure) note(l ledger) (err error) {
	if l.Next, err = t.after(l.Slot); err != nil && !errors.Is(err, ErrNoSlot) {
		return err
	}
	if err = l.save(context.WithoutCancel(t.ctx), t.hold); err == nil {
		t.ledger = l
	}
	return err
}

// after returns the first slot after the given time.
func (j *Job) after(last time.Time) (time.Time, error) {
	switch next := j.schedule(last.UTC()).Round(0); {
	case next.IsZero():
		return next, fmt.Errorf("slots: %s: after %v: %w", j.mutex.Path(), last, ErrNoSlot)
	case !next.After(last):
		return next, fmt.Errorf("slots: %s: the schedule goes backwards: %v comes after %v", j.mutex.Path(), next, last)
	default:
		return next, nil
	}
}

// next waits until a slot is due, and returns the slot. If the slot is a new one that runs at its time, how is "".
func (t *tenure) next() (slot Slot, how Kind, err error) {
	l := t.ledger
	slot = Slot{Time: l.Slot, Attempt: l.Attempt + 1}
	switch {
	case l.State == begun: // the process that has begun the slot crashed
		return slot, Retried, t.wait(time.Time{})
	case !l.Retry.IsZero():
		return slot, Retried, t.wait(l.Retry)
	}
	due, missed, err := t.due(l.Slot, t.now(), t.catchUp)
	if err == nil {
		err = t.wait(due)
	}
	if missed {
		how = CaughtUp
	}
	return Slot{Time: due, Attempt: 1}, how, err
}

// due returns the slot to run after the last one. Of the slots whose time has come, only the newest n run. due reports the others as
// skipped.
func (t *tenure) due(last, now time.Time, n int) (due time.Time, missed bool, err error) {
	due, err = t.after(last)
	if missed = err == nil && !due.After(now); !missed || n == All {
		return due, missed, err
	}
	var newest []time.Time
	var left time.Time // the newest slot that does not run
	count := 0
	for ; err == nil && !due.After(now) && t.ctx.Err() == nil; due, err = t.after(due) {
		if newest = append(newest, due); len(newest) > n {
			left, newest = newest[0], newest[1:]
			count++
		}
	}
	if count > 0 {
		t.report(Event{Kind: Skipped, Slot: Slot{Time: left, Late: now.Sub(left)}, Count: count})
	}
	if len(newest) > 0 {
		return newest[0], true, nil
	}
	return due, false, err
}

// longest limits the time between two checks of the clock in the wait for a slot, because the clock may be set.
const longest = time.Minute

// wait waits until the given time. It returns an error if ctx ends, if the lock is lost, or if another process asks for the lock.
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

// The method run begins a slot, calls f, and records the outcome.
func (t *tenure) run(slot Slot, how Kind, f func(context.Context, Slot) error) error {
	r, err := t.start(slot, t.now())
	if err != nil {
		return err
	}
	if how != "" {
		t.report(Event{Kind: how, Slot: r.slot})
	}
	if e := r.end(f(t.ctx, r.slot)); e.Kind == Lost {
		return e.Err
	}
	return nil
}

// start writes into the ledger that the slot is begun, and reports that.
func (t *tenure) start(slot Slot, now time.Time) (*Run, error) {
	slot.Token, slot.Late = t.hold.Token(), max(now.Sub(slot.Time), 0)
	if err := t.note(ledger{Slot: slot.Time, State: begun, Attempt: slot.Attempt}); err != nil {
		return nil, err
	}
	t.report(Event{Kind: Started, Slot: slot, Next: t.ledger.Next})
	return &Run{tenure: t, slot: slot, started: time.Now()}, nil
}

// end records the outcome of a run, and reports it. If the run has lost the lock, end records no outcome. It also records none if the run
// returned an error after ctx had ended.
func (r *Run) end(err error) Event {
	t, l := r.tenure, ledger{Slot: r.slot.Time, State: done, Attempt: r.slot.Attempt}
	e := Event{Kind: Ran, Slot: r.slot, Took: time.Since(r.started), Err: err}
	if err != nil {
		e.Kind, l.State = Failed, failed
		if l.Attempt <= t.retries {
			l.Retry = t.now().UTC().Round(0).Add(t.backoff << min(l.Attempt-1, 10))
		}
	}
	if err == nil || t.ctx.Err() == nil {
		if err := t.note(l); err != nil {
			e.Kind, e.Err = Lost, errors.Join(e.Err, err)
		}
	} else if loss := t.hold.Err(); loss != nil {
		e.Kind, e.Err = Lost, errors.Join(err, loss)
	}
	t.report(e)
	return e
}
