// Package gocronlock runs each slot of a gocron job in only one process, under a lock of package tier.
//
//	hourly := slots.Every(time.Hour, time.Time{}) // the same times as the job's
//	locker := gocronlock.NewLocker(locks, "/jobs", gocronlock.WithSchedule("hourly report", hourly))
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
	"github.com/tierlock/tierlock/slots"
	"github.com/tierlock/tierlock/tier"
)

// An Option changes a [Locker] or an [Elector].
type Option interface{ apply(*settings) }

type settings struct {
	slot.Rule
	schedules map[string]slots.Schedule // by the name of the job
}

type option func(*settings)

func (o option) apply(to *settings) { o(to) }

// WithSchedule makes each slot of the job with the given name run once, in all processes together. A ledger beside the lock records which
// slots were begun; see package slots. Therefore a slot does not run twice, even if the clocks of the processes differ, the job is very
// short, or a process dies. Each run belongs to the newest slot of the schedule whose time has come by the clock of the process. Lock
// returns an error that wraps [slots.ErrDone] if that slot was begun before.
//
// All processes have to pass the same schedule, and it has to be the schedule of the job in gocron. For example, pass the method Next of a
// schedule of robfig/cron. Caution: a cron expression without CRON_TZ is in UTC here, and in the zone of the scheduler in gocron. Use the
// same zone in both. For a [gocron.DurationJob], use [slots.Every] with the same interval: one process then runs the job in each interval.
//
// If a slot fails, or its process dies, the slot does not run again. [AtLeast] and [WithWait] have no effect on the job. The [Elector]
// ignores the schedule.
func WithSchedule(name string, schedule slots.Schedule) Option {
	return option(func(s *settings) {
		if s.schedules == nil {
			s.schedules = make(map[string]slots.Schedule)
		}
		s.schedules[name] = schedule
	})
}

// AtLeast sets a minimum time for which a run holds the lock. It is for jobs without [WithSchedule], and for the [Elector]. AtLeast holds
// the lock of each run for at least d after the acquisition, even if the run is shorter. A scheduler whose clock is late then finds the
// lock taken, and does not run the slot again. Choose d longer than the difference of the clocks, and short enough that the lock is free
// before the next slot. The default is 0. Caution: AtLeast does not protect if the clocks differ by more than d, or if the process dies
// before d has passed.
//
// The lock is released in the background, so no worker waits for the release. To end the process, call [tier.Registry.Shutdown], which
// waits for this release. [tier.Registry.Close] releases all locks at once.
func AtLeast(d time.Duration) Option { return option(func(s *settings) { s.AtLeast = d }) }

// WithWait makes a run of a job without [WithSchedule] wait up to d for the lock. Without this option, a process skips a slot if the lock
// is taken, so only one process runs each slot. With this option, every process runs each slot, one process after another. A process skips
// the slot if its wait ends first.
func WithWait(d time.Duration) Option { return option(func(s *settings) { s.Wait = d }) }

// WithLogger sets the logger for events that gocron does not report; the default is [slog.Default]. A warning is logged if a lock is lost
// during a run, because gocron cannot interrupt the job. A warning is also logged if a run is skipped because of an error. If a run is
// skipped because the lock is taken, or because the slot was begun before, a line is logged at level DEBUG.
func WithLogger(log *slog.Logger) Option { return option(func(s *settings) { s.Log = log }) }

// OnSlot registers a callback f for slots, the scheduled times of a job. f is called at each slot before the run begins. err is nil if this
// process runs the slot. If this process does not run the slot, err says why. The error err wraps [tier.ErrLocked] if another process holds
// the lock, and [slots.ErrDone] if the slot was begun before. Use the Slot method of tierprom or tierotel as f.
func OnSlot(f func(path string, err error)) Option {
	return option(func(s *settings) { s.OnSlot = f })
}

// A Locker is a [gocron.Locker].
type Locker struct {
	locks    *tier.Registry
	dir      string
	settings settings
}

// NewLocker returns a locker with one lock per job name. The path of a lock is [tier.Name] of dir and the job name. Caution: jobs with the
// same name exclude each other. By default gocron uses the name of the function, so give each job its own name. Give each job a schedule
// with [WithSchedule]. Without a schedule, use jobs with times of day: the slots of a [gocron.DurationJob] count from the start of the
// process, and therefore differ between processes.
func NewLocker(locks *tier.Registry, dir string, opts ...Option) *Locker {
	l := &Locker{locks: locks, dir: dir}
	for _, opt := range opts {
		opt.apply(&l.settings)
	}
	return l
}

// Lock acquires the lock of the job with the given name. Each call acquires the lock separately, so two runs of one job in one process
// also exclude each other. If Lock returns an error, gocron skips the run. The error wraps [tier.ErrLocked] if the lock is taken, and
// [slots.ErrDone] if the slot was begun before.
func (l *Locker) Lock(ctx context.Context, name string) (gocron.Lock, error) {
	mutex := l.locks.Mutex(tier.Name(l.dir, name), tier.WithLinger(0)) // no lingering, because for another process a lingering lock is taken
	run, err := l.settings.Begin(ctx, mutex, l.settings.schedules[name])
	if err != nil {
		return nil, err
	}
	return lock{run}, nil
}

type lock struct{ *slot.Run }

// Unlock releases the lock. The ledger then says that the slot has succeeded, because gocron does not pass the error of the job to Unlock.
// Unlock ignores its context: gocron passes the context of the job, and this context has ended when the scheduler is shut down.
func (l lock) Unlock(context.Context) error { return l.End(nil) }
