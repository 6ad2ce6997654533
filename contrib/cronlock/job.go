// Package cronlock runs each slot of a robfig/cron job in only one process, under a lock of package tier.
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

// AtLeast holds the lock of each run for at least d after the acquisition, even if the run is shorter. AtLeast protects against clock
// skew: a process whose clock is late finds the lock taken, and does not run the slot again. Choose d longer than the skew, and short
// enough that the lock is free before the next slot. The default is 0.
//
// The lock is released in the background. To end the process, call [tier.Registry.Shutdown], which waits for this release.
// [tier.Registry.Close] releases all locks at once.
func AtLeast(d time.Duration) Option { return option(func(r *slot.Rule) { r.AtLeast = d }) }

// WithWait makes a run wait up to d for the lock. Without this option, a process skips a slot if the lock is taken, so only one process
// runs each slot. With this option, every process runs each slot, one process after another. A process skips the slot if its wait ends
// first.
func WithWait(d time.Duration) Option { return option(func(r *slot.Rule) { r.Wait = d }) }

// WithLogger sets the logger; the default is [slog.Default]. A warning is logged if a lock is lost during a run, or if a run is skipped
// because of an error. If a run is skipped because the lock is taken, a line is logged at level DEBUG.
func WithLogger(log *slog.Logger) Option { return option(func(r *slot.Rule) { r.Log = log }) }

// OnSlot registers a callback f for slots, the scheduled times of a job. f is called at each slot before the run begins. err is nil if
// this process runs the slot. If this process does not run the slot, err says why, and wraps [tier.ErrLocked] if another process holds the
// lock. Use the Slot method of tierprom or tierotel as f.
func OnSlot(f func(path string, err error)) Option {
	return option(func(r *slot.Rule) { r.OnSlot = f })
}

// Job returns a job that calls f while it holds mutex. The context of f carries the hold, for [tier.HoldFrom], and ends if the lock is
// lost. Each run acquires the lock separately, so two runs in one process also exclude each other. Caution: use schedules with times of
// day. The slots of @every count from the start of the process, and therefore differ between processes.
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

// Locked is [Job] for a job without a context. Caution: such a job cannot be interrupted when the lock is lost; the loss is only logged.
// Give each job its own mutex. A wrapper in [cron.WithChain] applies to all jobs, so all jobs would share one mutex and exclude each
// other.
func Locked(mutex *tier.Mutex, opts ...Option) cron.JobWrapper {
	return func(job cron.Job) cron.Job {
		return Job(mutex, func(context.Context) { job.Run() }, opts...)
	}
}
