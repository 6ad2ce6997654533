package tier

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// A RegistryOption is an argument of a store's constructor: an option of this package or one of that store's package. A constructor
// refuses the options of another store.
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

// WithLeaseTTL sets T, the time after which the store grants the locks of a process to others when it no longer hears from that process.
// The default is 15 s. The package of each store documents the values it supports; ZooKeeper calls T the session timeout. A shorter T
// frees the locks of a dead process sooner. A longer T keeps locks through longer outages.
func WithLeaseTTL(d time.Duration) RegistryOption {
	return setting(func(s *second.Settings) { s.TTL = d })
}

// WithLeaseMargin sets the safety margin: how long before the store can grant a lock to others this process counts it as lost. The holder
// needs that time to stop, and it covers differences of clocks. The default, also for 0, is T/3, the maximum T/2. Locks survive outages
// of up to T - margin - T/4.
func WithLeaseMargin(d time.Duration) RegistryOption {
	return setting(func(s *second.Settings) { s.Margin = d })
}

// WithLabel sets a name for this process, at most 256 bytes of printable UTF-8. [Contender] and the store show it beside the host and pid.
func WithLabel(label string) RegistryOption {
	return setting(func(s *second.Settings) { s.Label = label })
}

// WithLogger sets the logger of a registry. By default warnings go to [slog.Default], and lines below WARN are dropped.
//
//   - WARN: a lock is lost; the session has expired; the store does not answer for longer than T/3, or not yet after 3 s; the store
//     refuses sessions or requests; a queue entry cannot be deleted; a downgrade cannot be written; the server is configured so that the
//     lease is not safe; and the warnings of [Mutex.Acquire] and [WithLeakDetection].
//   - INFO: the store answers again, and after how long; there is a new session.
//   - DEBUG: on ZooKeeper, failed attempts to connect and the lines of the client library.
//
// docs/operate.md in the repository lists the lines and what to do; the package of each store documents its own. The logger runs in a
// goroutine of its own. It may block, panic or call the registry; no lock waits for it. While it blocks, 256 lines wait and later ones
// are dropped and counted. Close waits for it for at most a second.
func WithLogger(logger *slog.Logger) RegistryOption {
	return setting(func(s *second.Settings) { s.Logger = logger })
}

// WithReleaseTimeout sets how long Release waits for a store that does not answer. The default, also for 0, is T/3. After that Release
// returns, and the queue entry is deleted in the background or ends with the session. A short timeout keeps goroutines from piling up in
// Release during an outage.
func WithReleaseTimeout(d time.Duration) RegistryOption {
	return setting(func(s *second.Settings) { s.Release = d })
}

// WithLazyStart makes the constructor return at once, for programs that must start while the store is unavailable. The first session is
// opened in the background, with retries. Until then Acquire blocks, TryAcquire fails once the store is known to be unreachable, and
// [Registry.Err] returns the reason.
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

	observer *Observer // nil if there is none
}

// defaults are the options of a registry without options.
var defaults = options{handOff: 20 * time.Millisecond}

// budget is for how long a lock may stay in the process while another process waits.
func (o *options) budget() time.Duration {
	if o.strict {
		return 0
	}
	return o.handOff
}

// WithHandOff sets the hand-off budget: how long this process may pass a lock among its own goroutines while another process waits. The
// default is 20 ms. While no other process waits, there is no limit. A budget of 0 or less is an error; [WithStrictOrder] turns hand-offs
// off. For semaphores, see [Registry.Semaphore].
//
// A lock is idle while it moves to another process. A budget of 19 times the transfer time keeps it in use for about 95 % of the time;
// [Stats] has the transfer time. Trade-off: each waiting process may wait for one budget per process ahead of it.
//
// Caution: set the same budget in all processes that share a lock. A process with a larger budget holds the lock for proportionally more
// time.
func WithHandOff(budget time.Duration) Option {
	return option(func(o *options) { o.handOff, o.strict = budget, false })
}

// WithStrictOrder gives the lock to the next process at each release, without local hand-off. Each acquisition in the process then costs
// the store as much as a transfer. It replaces [WithHandOff]; the later of the two options applies, and an option of a lock overrides
// that of the registry. With [WithRounds] it hands off within one round.
func WithStrictOrder() Option { return option(func(o *options) { o.strict = true }) }

// WithRounds serves every goroutine that was waiting when the process got the lock, before another process gets it, even if that takes
// longer than the hand-off budget. Use it on paths shared with libraries that have one queue entry per goroutine or thread, such as
// zk.Lock and Curator: this process then gets as many acquisitions with its one entry as they get with theirs. With [WithStrictOrder] it
// gets no more.
func WithRounds() Option { return option(func(o *options) { o.rounds = true }) }

// WithLinger keeps an idle lock in the process for up to d after the last release, so that acquiring it again needs no round trip. The
// default is 0. A process that queues, or asks with [Mutex.Revoke], ends it at once. TryAcquire in another process returns [ErrLocked]
// and does not end it.
//
// Use it for many locks that are mostly acquired by the same process, such as one per customer. A lingering lock costs a queue entry and
// two watches. It does not pay where several processes use a lock in turn: a process that finds it lingering waits up to two round trips
// longer. Each process measures that per lock and stops lingering where others usually come next.
func WithLinger(d time.Duration) Option { return option(func(o *options) { o.linger = d }) }

// WithMaxWait limits how long [Mutex.Acquire] and [Mutex.Do] wait for the lock. A longer wait ends with [ErrWaitLimit]. Unlike the
// deadline of a context, it does not limit the work. The default, 0, is no limit.
func WithMaxWait(d time.Duration) Option { return option(func(o *options) { o.maxWait = d }) }

// WithLeakDetection logs a warning for each hold that was dropped without a release: the lock would stay taken until the registry is
// closed. The warning has the path and the place where Acquire was called, and so does the warning about deadlocks of [Mutex.Acquire].
//
// The warning comes when the garbage collector finds the hold. A context of [Hold.Context], and every context derived from it, keeps the
// hold reachable. Permits are not covered. An acquisition costs eight more allocations and a stack trace. An [Observer] gets a different
// *Hold than the caller.
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
