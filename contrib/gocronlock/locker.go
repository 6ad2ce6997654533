// Package gocronlock runs jobs of gocron once in all processes, under a lock of package tier.
//
//	locker := gocronlock.NewLocker(locks, "/jobs", gocronlock.AtLeast(2*time.Second))
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
//
// With an elector, one process runs all jobs:
//
//	elector := gocronlock.NewElector(locks, "/elections/scheduler", gocronlock.AtLeast(2*time.Second))
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
package gocronlock

import (
	"context"
	"log/slog"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/tierlock/tierlock/contrib/internal/slot"
	"github.com/tierlock/tierlock/tier"
)

// An Option changes a [Locker] or an [Elector].
type Option interface{ apply(*slot.Rule) }

type option func(*slot.Rule)

func (o option) apply(to *slot.Rule) { o(to) }

// AtLeast holds the lock of a run for at least d, counted from the acquisition, however short the run is. It protects against clock skew:
// a scheduler whose clock is late then finds the slot taken instead of running it again. Choose d longer than the skew, and short enough
// that the lock is free before the next slot. The default is 0.
//
// The lock is released in the background; no worker waits for it. To end the process, call [tier.Registry.Shutdown], which waits for the
// release. Close releases all locks at once.
func AtLeast(d time.Duration) Option { return option(func(r *slot.Rule) { r.AtLeast = d }) }

// WithWait makes a run wait up to d for the lock. Without it, a run that finds the lock taken is skipped, so one process runs each slot.
// With it, each process runs each slot, and the processes take turns. A process skips the slot if its wait ends first.
func WithWait(d time.Duration) Option { return option(func(r *slot.Rule) { r.Wait = d }) }

// WithLogger sets the logger for events that gocron does not report; the default is [slog.Default]. It gets a warning if a lock is lost
// during its run, because gocron cannot interrupt the job, and if a run is skipped for another reason than a taken lock. A run that is
// skipped because the lock is taken is logged at level DEBUG.
func WithLogger(log *slog.Logger) Option { return option(func(r *slot.Rule) { r.Log = log }) }

// OnSlot registers a callback for each slot, called before its run begins. err is nil if this process runs the slot. Otherwise it is the
// reason why not; it wraps [tier.ErrLocked] if another process holds the lock. Use the Slot method of tierprom or tierotel.
func OnSlot(f func(path string, err error)) Option {
	return option(func(r *slot.Rule) { r.OnSlot = f })
}

// A Locker is a [gocron.Locker].
type Locker struct {
	locks *tier.Registry
	dir   string
	rule  slot.Rule
}

// NewLocker returns a locker with one lock per job name: [tier.Name] of dir and the name. Caution: jobs with the same name exclude each
// other, and gocron's default name is that of the function. Give each job a name of its own. Use jobs with times of day: slots of
// [gocron.DurationJob] begin with the process and differ in each one.
func NewLocker(locks *tier.Registry, dir string, opts ...Option) *Locker {
	l := &Locker{locks: locks, dir: dir}
	for _, opt := range opts {
		opt.apply(&l.rule)
	}
	return l
}

// Lock acquires the lock of the job called name. Each call is a separate owner, so two runs of one job in one process exclude each other,
// too. gocron skips the run on an error, which wraps [tier.ErrLocked] if the lock is taken.
func (l *Locker) Lock(ctx context.Context, name string) (gocron.Lock, error) {
	mutex := l.locks.Mutex(tier.Name(l.dir, name), tier.WithLinger(0)) // a lock that lingers is taken, for a try elsewhere
	run, err := l.rule.Begin(ctx, mutex)
	if err != nil {
		return nil, err
	}
	return lock{run}, nil
}

type lock struct{ *slot.Run }

// Unlock does not go by its context: gocron passes the job's, which has ended when the scheduler
// is shut down.
func (l lock) Unlock(context.Context) error { return l.End() }
