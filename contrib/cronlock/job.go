// Package cronlock runs each slot of a robfig/cron job in only one process, under a lock of package tier.
//
//	c := cron.New()
//	_, err := cronlock.Add(c, "@hourly", locks.Mutex("/jobs/report"), makeReport)
package cronlock

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/tierlock/tierlock/contrib/internal/slot"
	"github.com/tierlock/tierlock/slots"
	"github.com/tierlock/tierlock/tier"
)

// An Option sets how a job acquires and holds its lock.
type Option interface{ apply(*slot.Rule) }

type option func(*slot.Rule)

func (o option) apply(to *slot.Rule) { o(to) }

// AtLeast sets a minimum time for which a run holds the lock. It is for [Job] and [Locked], and has no effect on [Add]. AtLeast holds the
// lock of each run for at least d after the acquisition, even if the run is shorter. A process whose clock is late then finds the lock
// taken, and does not run the slot again. Choose d longer than the difference of the clocks, and short enough that the lock is free before
// the next slot. The default is 0. Caution: AtLeast does not protect if the clocks differ by more than d, or if the process dies before d
// has passed.
//
// The lock is released in the background. To end the process, call [tier.Registry.Shutdown], which waits for this release.
// [tier.Registry.Close] releases all locks at once.
func AtLeast(d time.Duration) Option { return option(func(r *slot.Rule) { r.AtLeast = d }) }

// WithWait makes a run of [Job] or [Locked] wait up to d for the lock; it has no effect on [Add]. Without this option, a process skips a
// slot if the lock is taken, so only one process runs each slot. With this option, every process runs each slot, one process after another.
// A process skips the slot if its wait ends first.
func WithWait(d time.Duration) Option { return option(func(r *slot.Rule) { r.Wait = d }) }

// WithLogger sets the logger; the default is [slog.Default]. A warning is logged if a lock is lost during a run, or if a run is skipped
// because of an error. If a run is skipped because the lock is taken, or because the slot was begun before, a line is logged at level
// DEBUG.
func WithLogger(log *slog.Logger) Option { return option(func(r *slot.Rule) { r.Log = log }) }

// OnSlot registers a callback f for slots, the scheduled times of a job. f is called at each slot before the run begins. err is nil if this
// process runs the slot. If this process does not run the slot, err says why. The error err wraps [tier.ErrLocked] if another process holds
// the lock, and [slots.ErrDone] if the slot was begun before. Use the Slot method of tierprom or tierotel as f.
func OnSlot(f func(path string, err error)) Option {
	return option(func(r *slot.Rule) { r.OnSlot = f })
}

// Add adds a job to c that calls f once per slot, in all processes together. A ledger beside the lock of mutex records which slots were
// begun; see package slots. Therefore a slot does not run twice, even if the clocks of the processes differ, the job is very short, or a
// process dies. The context of f carries the hold, for [tier.HoldFrom], and ends if the lock is lost. If the spec is wrong, Add returns the
// error of [cron.Cron.AddJob].
//
// All processes have to use the same spec and time zone. Each run belongs to the newest slot of the spec whose time has come by the clock
// of the process. With "@every 10s", each process counts its intervals from its own start; the process whose run comes first in an interval
// of 10 s runs the job.
//
// If the process dies during a slot, or f panics, the slot does not run again. If f is still running at the next slot, that slot is
// skipped. Do not use [tier.WithLinger] for mutex, because other processes would find the idle lock taken.
func Add(c *cron.Cron, spec string, mutex *tier.Mutex, f func(ctx context.Context), opts ...Option) (cron.EntryID, error) {
	var schedule slots.Schedule
	known := make(chan struct{}) // closed when schedule is set; c may run the job earlier
	id, err := c.AddJob(spec, cron.FuncJob(func() {
		<-known
		run(mutex, schedule, f, opts)
	}))
	if err == nil {
		schedule = slotsOf(c.Entry(id).Schedule, c.Location())
		close(known)
	}
	return id, err
}

// slotsOf returns the schedule that all processes share. An interval of robfig/cron counts from the start of the process.
func slotsOf(s cron.Schedule, zone *time.Location) slots.Schedule {
	if interval, ok := s.(cron.ConstantDelaySchedule); ok {
		return slots.Every(interval.Delay, time.Time{})
	}
	return func(after time.Time) time.Time { return s.Next(after.In(zone)) }
}

// Job returns a job that calls f while it holds mutex. The context of f carries the hold, for [tier.HoldFrom], and ends if the lock is
// lost. Each run acquires the lock separately, so two runs in one process also exclude each other. Job does not know the slots: if the
// clock of another process is late, that process may run a slot again; [Add] prevents this. Caution: use schedules with times of day. The
// slots of @every count from the start of the process, and therefore differ between processes.
func Job(mutex *tier.Mutex, f func(ctx context.Context), opts ...Option) cron.Job {
	return cron.FuncJob(func() { run(mutex, nil, f, opts) })
}

// errPanic is the outcome of a slot whose job did not return.
var errPanic = errors.New("the job panicked")

func run(mutex *tier.Mutex, schedule slots.Schedule, f func(context.Context), opts []Option) {
	var rule slot.Rule
	for _, opt := range opts {
		opt.apply(&rule)
	}
	ctx := context.Background() // robfig/cron passes no context, and waits for running jobs when it stops
	run, err := rule.Begin(ctx, mutex, schedule)
	if err != nil {
		return
	}
	err = errPanic
	defer func() { run.End(err) }()
	f(run.Hold.Context(ctx))
	err = nil
}

// Locked is [Job] for a job without a context. Caution: such a job cannot be interrupted when the lock is lost; the loss is only logged.
// Give each job its own mutex. A wrapper in [cron.WithChain] applies to all jobs, so all jobs would share one mutex and exclude each
// other.
func Locked(mutex *tier.Mutex, opts ...Option) cron.JobWrapper {
	return func(job cron.Job) cron.Job {
		return Job(mutex, func(context.Context) { job.Run() }, opts...)
	}
}
