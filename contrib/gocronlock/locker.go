// Package gocronlock makes gocron run each job once in a fleet, under a lock of package tier.
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

// AtLeast keeps the lock of a run for at least d after the run got it, however short the run is. A
// scheduler whose clock is late then finds the slot taken instead of running it again. d should be
// longer than the clocks are apart, and leave as much time before the next slot, which nobody runs
// otherwise. The default is 0.
//
// The worker does not wait: the lock goes in the background. End the process with
// [tier.Registry.Shutdown], which waits for that; Close gives all locks up at once.
func AtLeast(d time.Duration) Option { return option(func(r *slot.Rule) { r.AtLeast = d }) }

// WithWait makes a run wait for the lock for up to d. Without it a run that finds the lock taken is
// skipped, so each slot is run by one process. With it every process runs each slot, one after the
// other, unless the wait is over first.
func WithWait(d time.Duration) Option { return option(func(r *slot.Rule) { r.Wait = d }) }

// WithLogger sets where to say what gocron keeps to itself; the default is [slog.Default]. A lock
// that is lost before its run is over is a warning, as gocron has no way to tell the job. So is a
// run that is skipped for any other reason than that somebody else has the lock; that one is
// logged at debug level.
func WithLogger(log *slog.Logger) Option { return option(func(r *slot.Rule) { r.Log = log }) }

// OnSlot has f told of each slot, before its run begins: err is nil if this process runs it, and else says why not; it wraps
// [tier.ErrLocked] if another one has the lock. The Slot method of both packages of metrics is such a function.
func OnSlot(f func(path string, err error)) Option {
	return option(func(r *slot.Rule) { r.OnSlot = f })
}

// A Locker is a [gocron.Locker].
type Locker struct {
	locks *tier.Registry
	dir   string
	rule  slot.Rule
}

// NewLocker returns a locker that has a lock for each job name, below dir: [tier.Name] of both.
// Jobs of one name exclude one another, so give each a name of its own: gocron's default is that of
// its function. A slot is a time on the clock: those of [gocron.DurationJob] differ in each process.
func NewLocker(locks *tier.Registry, dir string, opts ...Option) *Locker {
	l := &Locker{locks: locks, dir: dir}
	for _, opt := range opts {
		opt.apply(&l.rule)
	}
	return l
}

// Lock takes the lock of the job called name. Each call is an owner of its own, so two runs of one
// job in one process exclude each other as well. gocron skips the run if there is an error:
// [tier.ErrLocked] if somebody else has the lock.
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
