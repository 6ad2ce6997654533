// Package cronlock runs jobs of robfig/cron once in all processes, under a lock of package tier.
//
//	report := locks.Mutex("/jobs/report")
//	c.AddJob("@hourly", cronlock.Job(report, makeReport, cronlock.AtLeast(2*time.Second)))
package cronlock

import (
	"context"
	"log/slog"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/tierlock/tierlock/contrib/internal/slot"
	"github.com/tierlock/tierlock/tier"
)

// An Option sets how a job acquires and holds its lock.
type Option interface{ apply(*slot.Rule) }

type option func(*slot.Rule)

func (o option) apply(to *slot.Rule) { o(to) }

// AtLeast holds the lock of a run for at least d, counted from the acquisition, however short the run is. It protects against clock skew:
// a process whose clock is late then finds the slot taken instead of running it again. Choose d longer than the skew, and short enough
// that the lock is free before the next slot. The default is 0.
//
// The lock is released in the background. To end the process, call [tier.Registry.Shutdown], which waits for the release. Close releases
// all locks at once.
func AtLeast(d time.Duration) Option { return option(func(r *slot.Rule) { r.AtLeast = d }) }

// WithWait makes a run wait up to d for the lock. Without it, a run that finds the lock taken is skipped, so one process runs each slot.
// With it, every process runs each slot, one after another, unless its wait ends first.
func WithWait(d time.Duration) Option { return option(func(r *slot.Rule) { r.Wait = d }) }

// WithLogger sets the logger; the default is [slog.Default]. It gets a warning if a lock is lost during its run, and if a run is skipped
// for another reason than a taken lock. A run that is skipped because the lock is taken is logged at level DEBUG.
func WithLogger(log *slog.Logger) Option { return option(func(r *slot.Rule) { r.Log = log }) }

// OnSlot registers a callback for each slot, called before its run begins. err is nil if this process runs the slot. Otherwise it is the
// reason why not; it wraps [tier.ErrLocked] if another process holds the lock. Use the Slot method of tierprom or tierotel.
func OnSlot(f func(path string, err error)) Option {
	return option(func(r *slot.Rule) { r.OnSlot = f })
}

// Job returns a job that calls f while it holds mutex. The context of f carries the hold, for [tier.HoldFrom], and ends if the lock is
// lost. Each run is a separate owner, so two runs in one process exclude each other, too. Caution: use schedules with times of day. Slots
// of @every begin with the process and differ in each one.
func Job(mutex *tier.Mutex, f func(ctx context.Context), opts ...Option) cron.Job {
	var rule slot.Rule
	for _, opt := range opts {
		opt.apply(&rule)
	}
	return cron.FuncJob(func() {
		run, err := rule.Begin(context.Background(), mutex)
		if err != nil {
			return
		}
		defer run.End()
		f(run.Hold.Context(context.Background()))
	})
}

// Locked is [Job] for a job without a context. Caution: such a job cannot be interrupted when the lock is lost; only the log reports it.
// Give each job its own mutex: in [cron.WithChain] one wrapper applies to all jobs, which would exclude each other.
func Locked(mutex *tier.Mutex, opts ...Option) cron.JobWrapper {
	return func(job cron.Job) cron.Job {
		return Job(mutex, func(context.Context) { job.Run() }, opts...)
	}
}
