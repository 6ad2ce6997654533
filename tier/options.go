package tier

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// A RegistryOption is an argument of a store's constructor. Options come from this package and from the package of the store. A
// constructor refuses the options of another store.
type RegistryOption interface{ forRegistry() }

// An Option sets how this process shares locks with other processes. Pass it to a store's constructor for all locks of the [Registry], or
// to [Registry.Mutex], [Registry.RWMutex] or [Registry.Semaphore] for one lock.
type Option interface {
	RegistryOption
	forLock()
}

type option func(*options)

func (option) forRegistry() {}
func (option) forLock()     {}

// Wrong returns an error if the value of the option is invalid. It does not check the other options.
func (o option) Wrong() error {
	alone := defaults
	o(&alone)
	return alone.check()
}

// A setting is an option of the connection to the store.
type setting func(*second.Settings)

func (setting) forRegistry() {}

// Settle applies the option to s.
func (set setting) Settle(s *second.Settings) { set(s) }

// WithLeaseTTL sets T, the lease TTL. If the store receives no request of a process for T, it grants the locks of that process to other
// processes. The default is 15 s. The package of each store documents the values it supports; ZooKeeper calls T the session timeout. A
// shorter T frees the locks of a dead process sooner. A longer T keeps locks through longer outages.
func WithLeaseTTL(d time.Duration) RegistryOption {
	return setting(func(s *second.Settings) { s.TTL = d })
}

// WithLeaseMargin sets the safety margin. This process counts a lock as lost one margin before the store can grant the lock to another
// process. The margin gives the holder time to stop, and covers differences of clocks. The default, also for 0, is T/3. The maximum is T/2.
// Locks survive outages of up to T - margin - T/4.
func WithLeaseMargin(d time.Duration) RegistryOption {
	return setting(func(s *second.Settings) { s.Margin = d })
}

// WithLabel sets a name for this process, at most 256 bytes of printable UTF-8. [Contender] and the data in the store show the label
// together with host and process ID.
func WithLabel(label string) RegistryOption {
	return setting(func(s *second.Settings) { s.Label = label })
}

// WithLogger sets the logger of a registry. By default warnings go to [slog.Default], and lines below WARN are dropped.
//
//   - WARN: a lock is lost. The session has expired. The store has not answered for T/3, or has not answered at all 3 s after the start.
//     The store refuses sessions or requests. The store is in a grace period. Notifications are unavailable. A queue entry cannot be
//     deleted. A downgrade cannot be written. The lease is unsafe with the server's configuration. A semaphore has another number of
//     permits than this process gave. A goroutine waits behind its own process, see [Mutex.Acquire]. A hold was never released, see
//     [WithLeakDetection].
//   - INFO: the store answers again, with the duration of the outage. There is a new session.
//   - DEBUG: on ZooKeeper, failed attempts to connect and the lines of the client library.
//
// docs/operate.md in the repository lists the log lines and what to do. The package of each store documents further lines. The logger is
// called in a separate goroutine. The logger may block, panic or call the registry; no lock waits for the logger. While the logger blocks,
// up to 256 lines wait. Further lines are dropped and counted. Close waits for the logger for at most a second.
func WithLogger(logger *slog.Logger) RegistryOption {
	return setting(func(s *second.Settings) { s.Logger = logger })
}

// WithReleaseTimeout sets how long Release waits for a store that does not answer. The default, also for 0, is T/3. After this time
// Release returns. The queue entry is then deleted in the background, or ends with the session. A short timeout keeps goroutines from
// piling up in Release during an outage.
func WithReleaseTimeout(d time.Duration) RegistryOption {
	return setting(func(s *second.Settings) { s.Release = d })
}

// WithLazyStart makes the constructor return at once, for programs that must start while the store is unavailable. The first session is
// opened in the background, with retries. Until the session is open, Acquire blocks, and [Registry.Err] returns the reason. TryAcquire
// fails as soon as the store is known to be unreachable.
func WithLazyStart() RegistryOption {
	return setting(func(s *second.Settings) { s.Lazy = true })
}

type options struct {
	handOff time.Duration
	strict  bool // the order is strict, and handOff has no effect
	rounds  bool
	linger  time.Duration
	maxWait time.Duration // 0: no limit
	traced  bool

	observer *Observer // nil if there is none
}

// defaults are the options of a registry without options.
var defaults = options{handOff: 20 * time.Millisecond}

// budget returns for how long a lock may stay in the process while another process waits for it.
func (o *options) budget() time.Duration {
	if o.strict {
		return 0
	}
	return o.handOff
}

// WithHandOff sets the hand-off budget: how long this process may pass a lock among its own goroutines while another process waits. The
// default is 20 ms. While no other process waits, the process may keep the lock without limit. A budget of 0 or less is an error;
// [WithStrictOrder] turns hand-offs off. For semaphores, see [Registry.Semaphore].
//
// A lock is idle while it moves to another process. A budget of 19 times the transfer time keeps the lock in use for about 95 % of the
// time. [Stats] has the transfer time. In exchange, a waiting process may wait for one budget for each process ahead of it.
//
// The budget runs from the request that found the other process in the queue, or from the grant if that is later. This request takes a
// round trip, however short the budget is.
//
// Caution: set the same budget in all processes that share a lock. A process with twice the budget holds the lock for twice as much time.
func WithHandOff(budget time.Duration) Option {
	return option(func(o *options) { o.handOff, o.strict = budget, false })
}

// WithStrictOrder turns local hand-off off: each release gives the lock to the next process. With this option, each acquisition costs the
// store as much as a transfer. If both WithStrictOrder and [WithHandOff] are given, the later option applies. An option of a lock overrides
// an option of the registry. If [WithRounds] is also given, the process still hands the lock off within one round.
func WithStrictOrder() Option { return option(func(o *options) { o.strict = true }) }

// WithRounds makes a process serve a whole round before another process gets the lock. A round consists of all goroutines that were waiting
// when the process got the lock. A round may take longer than the hand-off budget. Use WithRounds on paths that are shared with libraries
// that have one queue entry per goroutine or thread, such as zk.Lock and Curator. With WithRounds, a process with one queue entry gets as
// many acquisitions as such a library gets with many entries. Add [WithStrictOrder] so that the process does not get more acquisitions than
// its share.
func WithRounds() Option { return option(func(o *options) { o.rounds = true }) }

// WithLinger keeps an idle lock in the process for up to d after the last release, so that acquiring it again needs no round trip. The
// default is 0. The idle lock is released at once if another process queues for it or calls [Mutex.Revoke]. TryAcquire in another process
// returns [ErrLocked], and the idle lock is kept: TryAcquire leaves no trace in the store.
//
// Use WithLinger if each lock is mostly acquired by the same process, for example with one lock per customer. A lingering lock costs a
// queue entry and two watches. If several processes use a lock alternately, WithLinger costs time: a process that finds the lock lingering
// waits up to two round trips longer. Therefore each process measures which process acquires a lock next. The process stops lingering on
// locks that other processes usually acquire next. It tries again now and then, and lingers again once that pays.
func WithLinger(d time.Duration) Option { return option(func(o *options) { o.linger = d }) }

// WithMaxWait limits how long [Mutex.Acquire] and [Mutex.Do] wait for the lock. A longer wait ends with [ErrWaitLimit]. Unlike the
// deadline of a context, the limit does not apply to the work under the lock. The default, 0, is no limit.
func WithMaxWait(d time.Duration) Option { return option(func(o *options) { o.maxWait = d }) }

// WithLeakDetection logs a warning for each hold that was dropped without a release: the lock would stay taken until the registry is
// closed. The warning has the path, and the place where Acquire was called. With this option, the deadlock warning of [Mutex.Acquire] also
// has that place.
//
// The warning is logged when the garbage collector finds the hold. There is no warning while the program keeps a context of [Hold.Context],
// or a context derived from it, because the context refers to the hold. The option does not cover permits of semaphores. Each acquisition
// costs eight more allocations and a stack trace. An [Observer] gets a different *Hold than the caller.
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

// forLock returns a copy of o to which opts are applied. Options of other types are returned in own: they come from the package of a store,
// and apply to locks of that store.
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
