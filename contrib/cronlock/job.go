// Package cronlock makes robfig/cron run a job once in a fleet, under a lock of package tier.
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

// An Option changes how a job comes by its lock.
type Option interface{ apply(*slot.Rule) }

type option func(*slot.Rule)

func (o option) apply(to *slot.Rule) { o(to) }

// AtLeast keeps the lock of a run for at least d after the run got it, however short the run is. A
// process whose clock is late then finds the slot taken instead of running it again. d should be
// longer than the clocks are apart, and leave as much time before the next slot, which nobody runs
// otherwise. The default is 0.
//
// The lock goes in the background. End the process with [tier.Registry.Shutdown], which waits for
// that; Close gives all locks up at once.
func AtLeast(d time.Duration) Option { return option(func(r *slot.Rule) { r.AtLeast = d }) }

// WithWait makes a run wait for the lock for up to d. Without it a run that finds the lock taken is
// skipped, so each slot is run by one process. With it every process runs each slot, one after the
// other, unless the wait is over first.
func WithWait(d time.Duration) Option { return option(func(r *slot.Rule) { r.Wait = d }) }

// WithLogger sets where to say what cannot be returned; the default is [slog.Default]. A lock that
// is lost before its run is over is a warning. So is a run that is skipped for any other reason
// than that somebody else has the lock; that one is logged at debug level.
func WithLogger(log *slog.Logger) Option { return option(func(r *slot.Rule) { r.Log = log }) }

// OnSlot has f told of each slot, before its run begins: err is nil if this process runs it, and else says why not; it wraps
// [tier.ErrLocked] if another one has the lock. The Slot method of both packages of metrics is such a function.
func OnSlot(f func(path string, err error)) Option {
	return option(func(r *slot.Rule) { r.OnSlot = f })
}

// Job returns a job that calls f while it holds mutex. The context of f carries the hold, for
// [tier.HoldFrom], and ends if the lock is lost. Each run is an owner of its own, so two runs in one
// process exclude each other as well. A slot is a time on the clock: those of @every differ in each process.
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

// Locked is [Job] for a job that takes no context, which therefore is not told if the lock is lost;
// only the log says so. Give each job a mutex of its own: in [cron.WithChain] the wrapper would be for
// all jobs, and they would exclude one another.
func Locked(mutex *tier.Mutex, opts ...Option) cron.JobWrapper {
	return func(job cron.Job) cron.Job {
		return Job(mutex, func(context.Context) { job.Run() }, opts...)
	}
}
