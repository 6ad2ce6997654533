package tier

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// A RegistryOption is for the constructor of a store: an option of this package, or one of the package of that store. The constructor
// refuses the option of another store.
type RegistryOption interface{ forRegistry() }

// An Option says how this process shares locks with other processes. The constructor of a store takes it for all locks of the
// [Registry]; [Registry.Mutex], [Registry.RWMutex] and [Registry.Semaphore] take it for one lock.
type Option interface {
	RegistryOption
	forLock()
}

type option func(*options)

func (option) forRegistry() {}
func (option) forLock()     {}

// Wrong says what is wrong with the option, whatever other options say.
func (o option) Wrong() error {
	alone := defaults
	o(&alone)
	return alone.check()
}

// A setting is an option of the connection to the store.
type setting func(*second.Settings)

func (setting) forRegistry() {}

// Settle sets what the option says.
func (set setting) Settle(s *second.Settings) { set(s) }

// WithLeaseTTL sets the time T after which the store gives the locks of a process to others if the process has died or cannot be heard.
// The default is 15 s. Each store documents which values it supports: ZooKeeper, for example, calls T the session timeout and bounds it
// by its tickTime. A shorter T frees the locks of a dead process sooner; a longer one survives longer outages.
func WithLeaseTTL(d time.Duration) RegistryOption {
	return setting(func(s *second.Settings) { s.TTL = d })
}

// WithLeaseMargin sets the safety margin: how long before the store can give a lock away the process counts it as lost. The default, also
// for 0, is a third of the lease TTL; at most it is half of it. In that time the holder has to stop, and clocks may differ. An outage may
// last for the TTL less the margin and a quarter of the TTL without the loss of a lock.
func WithLeaseMargin(d time.Duration) RegistryOption {
	return setting(func(s *second.Settings) { s.Margin = d })
}

// WithLabel sets a name for this process, at most 256 bytes of printable UTF-8. [Contender] and the store show it beside the host and pid.
func WithLabel(label string) RegistryOption {
	return setting(func(s *second.Settings) { s.Label = label })
}

// WithLogger sets the logger of a registry. By default lines of level WARN and above go to [slog.Default], as it is when the line is
// written, and lines below that are dropped.
//
//   - WARN: a lock was lost, once per hold, with path, token and cause, unless the registry was closed; the store does not answer for
//     longer than a third of the lease TTL, once per outage, or has not answered yet, after 3 s and then ever more rarely; the session
//     has expired, or the store refuses a new one; a queue entry cannot be deleted; a downgrade cannot be written; the server is
//     configured so that the lease is not safe; and what [Mutex.Acquire] and [WithLeakDetection] warn of.
//   - INFO: the store answers again, and after how long (not each time if that keeps changing); there is a new session.
//   - DEBUG: on ZooKeeper each failed attempt to connect, and the lines of the client library.
//
// The package of a store documents what else it logs. The logger may block, panic or call the registry: it runs in a goroutine of its own,
// and no lock waits for it. While it blocks, 256 lines wait. Later lines are dropped, and the next line written says how many. Close waits
// for the logger for a second at most.
func WithLogger(logger *slog.Logger) RegistryOption {
	return setting(func(s *second.Settings) { s.Logger = logger })
}

// WithReleaseTimeout sets how long Release waits for a store that does not answer. The default, also for 0, is a third of the lease TTL.
// After that Release returns, and the entry is deleted in the background or ends with the session. A short timeout keeps goroutines
// from piling up in Release during an outage. Whether the lock was held to the end is then decided by the lease.
func WithReleaseTimeout(d time.Duration) RegistryOption {
	return setting(func(s *second.Settings) { s.Release = d })
}

// WithLazyStart has the constructor return at once, for programs that must start while the store is away. The first session is then
// opened in the background, which is retried until it succeeds. Until then acquisitions wait, TryAcquire fails once it is known that the
// store cannot be reached, and [Registry.Err] says why there is no session.
func WithLazyStart() RegistryOption {
	return setting(func(s *second.Settings) { s.Lazy = true })
}

type options struct {
	handOff time.Duration
	strict  bool // whatever handOff is
	rounds  bool
	linger  time.Duration
	maxWait time.Duration // 0: no limit
	traced  bool

	observer *Observer // nil if nobody observes
}

// defaults are the options that nobody has set.
var defaults = options{handOff: 20 * time.Millisecond}

// budget is for how long a lock may stay in the process while another process waits.
func (o *options) budget() time.Duration {
	if o.strict {
		return 0
	}
	return o.handOff
}

// WithHandOff sets the hand-off budget: for how long this process may hand a lock off among its own
// goroutines while another process waits for it. The default is 20 ms. While no other process waits
// there is no limit. A budget of 0 or less is an error; [WithStrictOrder] turns hand-offs off.
//
// A lock is idle while it moves to another process. With a budget of 19 times the time of such a
// transfer it is in use for about 95 % of the time; [Stats] tells how long transfers take. A larger budget
// makes waits longer, as each process ahead may use all of it.
//
// The budget runs from the request that found the other process in the queue, or from the grant if that
// is later. The request takes a round trip, however short the budget is.
//
// Caution: set the same budget in all processes that share a lock. Each gets a share of the time in
// proportion to its own budget.
//
// What the budget is for permits, [Registry.Semaphore] says.
func WithHandOff(budget time.Duration) Option {
	return option(func(o *options) { o.handOff, o.strict = budget, false })
}

// WithStrictOrder serves processes in strict order: each release gives the lock to the next process that
// waits, and no goroutine gets it from another one of its process, except by [WithRounds]. It replaces
// [WithHandOff]; of the two the later one counts, and the option of a lock before that of the registry.
//
// A turn that stays in a process then costs the store as much as a transfer.
func WithStrictOrder() Option { return option(func(o *options) { o.strict = true }) }

// WithRounds gives a turn to every goroutine that was waiting when the lock came, before
// another process gets its turn, even if that takes longer than the hand-off budget. It
// is for paths shared with locks that have one contender per goroutine or thread, such as
// zk.Lock and Curator's: the queue is fair to contenders, and with rounds a process gets as many
// turns with its single one as they do with theirs. With [WithStrictOrder] it gets no more.
func WithRounds() Option { return option(func(o *options) { o.rounds = true }) }

// WithLinger keeps the lock for up to d after the last release when nobody waits, so
// that the next acquisition of this process needs no round trip; default 0. Another
// process that queues ends it at once, and so does one that asks for the lock with [Mutex.Revoke].
//
// It is for many locks, such as one per customer, each of which mostly the same process wants.
// Then a turn costs the store nothing; what lingers is a contender and two watches. Where several
// processes want the same lock it does not help: whoever finds it lingering waits up to two round
// trips longer than if it had gone. So the process learns at each path whether that pays. Where
// others come most often the lock goes at once, but for one release in 256; when they stay away it
// lingers again. TryAcquire in another process gets [ErrLocked], which does not end the lingering,
// nor is anything learned from it.
func WithLinger(d time.Duration) Option { return option(func(o *options) { o.linger = d }) }

// WithMaxWait limits how long [Mutex.Acquire] and [Mutex.Do] wait for the lock; 0, the default,
// is no limit. Unlike the deadline of a context it does not limit the work. A wait that takes
// longer ends with [ErrWaitLimit].
func WithMaxWait(d time.Duration) Option { return option(func(o *options) { o.maxWait = d }) }

// WithLeakDetection warns, on the logger of the store, of each hold that was forgotten: not released, while nothing in the program
// refers to it any more. Such a lock stays taken until the registry is closed. The warning has the path, and where Acquire was
// called; so has that of a wait behind a hold of its own process, see [Mutex.Acquire].
//
// It comes when the garbage collector finds the hold. A context of [Hold.Context] refers to the hold, and so does what is derived from
// it. Permits are not watched. An [Observer] is told of another *Hold than the caller gets. A turn makes eight allocations
// more, and notes its callers; without the option it costs nothing more.
func WithLeakDetection() Option { return option(func(o *options) { o.traced = true }) }

func (o options) check() error {
	switch {
	case o.handOff <= 0:
		return fmt.Errorf("hand-off budget %v: want more than 0; for no hand-off use tier.WithStrictOrder", o.handOff)
	case o.linger < 0:
		return fmt.Errorf("linger %v: negative", o.linger)
	case o.maxWait < 0:
		return fmt.Errorf("wait limit %v: negative", o.maxWait)
	}
	return nil
}

// forLock returns o as opts change it. An option of another type is one that a package of this module makes for locks of its own store.
func (o *options) forLock(opts []Option) (changed *options, own []any, err error) {
	if len(opts) == 0 {
		return o, nil, nil
	}
	other := *o
	for _, opt := range opts {
		if share, ok := opt.(option); ok {
			share(&other)
			if other.observer != o.observer {
				return o, nil, errors.New("an observer is for a registry, not for one lock")
			}
		} else {
			own = append(own, opt)
		}
	}
	return &other, own, other.check()
}
