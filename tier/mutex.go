package tier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// A Mutex is a lock path in a registry. It is safe for concurrent use.
//
// It is not a sync.Locker: a lock that can fail must be able to say so.
type Mutex struct {
	registry *Registry
	at       lockKey
	mode     second.Mode
	options  *options
	claim    second.Claim
	invalid  error // why path or an option cannot be used, nil if they can
	key      any   // an ownerKey
}

// Mutex returns the lock at path. Options are for what is done by way of this mutex; what they
// leave open is as in the registry. A Mutex is cheap and need not be closed; all of one path
// share one gate, and what becomes of the lock at a release goes by the options of the mutex by
// which the owner came. A path that cannot be a lock, or a wrong option, is reported by the
// methods of the mutex.
func (r *Registry) Mutex(path string, opts ...Option) *Mutex {
	return r.mutex(lockKey{path, exclusive}, second.Exclusive, opts)
}

func (r *Registry) mutex(at lockKey, mode second.Mode, opts []Option) *Mutex {
	m := &Mutex{registry: r, at: at, mode: mode, key: ownerKey{r, at}}
	var own []any
	if m.options, own, m.invalid = r.options.forLock(opts); m.invalid != nil {
		m.invalid = fmt.Errorf("tier: mutex %s: %w", at.path, m.invalid)
		return m
	}
	m.claim, m.invalid = r.second.Claim(at.path, second.Options{Mode: mode, MayLinger: m.options.linger, Own: own})
	return m
}

func (m *Mutex) reads() bool { return m.mode == second.Reading }

// Path returns the path of the lock.
func (m *Mutex) Path() string { return m.at.path }

// Acquire waits until the lock is held, ctx is done, or an error occurs that retrying cannot
// fix (no permission, a path that cannot be used); every waiter of the process then gets that
// error. While the store cannot be reached it keeps trying.
//
// If ctx comes from [Hold.Context] of this lock and that hold is not released, Acquire enters
// again: it returns at once with another hold of the same ownership, or with [ErrLost] if the
// lock was lost. With any other context a goroutine that holds the lock waits for itself. Whoever
// waits behind one hold of its own process for 10 s is told of on the logger of the store: a warning
// for each hold, and each path an hour. Two goroutines that each hold a lock that the other one waits for get that
// warning, too: take such locks with [AcquireAll].
//
// When the wait ended without the lock the error is a [*WaitError], which says who is in the way as
// far as this process knows. It wraps context.Cause(ctx), which is ctx.Err() unless the program has
// given another one; or [ErrWaitLimit], at the limit of [WithMaxWait]; or [ErrClosed]. If the store
// cannot be reached, or grants nothing, it wraps the reason as well.
// After any error nothing of this call is left, or it is removed in the background.
func (m *Mutex) Acquire(ctx context.Context) (*Hold, error) {
	return m.acquire(ctx, "acquire", (*cohort).enter)
}

// TryAcquire is Acquire without waiting for others. If it returns no hold, its error wraps
//
//   - [ErrLocked] if another owner has the lock or waits for it, or has only just given up waiting;
//   - [ErrLocked] and a [*GracePeriodError] while the store grants no lock after its start or a fail-over;
//   - [ErrUnavailable] while the store cannot be reached or refuses requests;
//   - [ErrLost] if ctx is that of a hold that was lost, and [ErrClosed] if the registry is closed;
//   - the cause of ctx, or an error that trying again does not change, such as a missing permission.
//
// If another goroutine of this process has the lock, nothing is sent; otherwise a try costs one round trip, and in ZooKeeper a second
// one if nobody is there. While [Registry.Err] says that the store cannot be reached it fails at once. A server that has just fallen
// silent is waited for until that is known, or ctx is done, or another goroutine of this process waits for the lock and the answer has
// taken a second: the error is [ErrLocked] then, and the other goroutine queues.
func (m *Mutex) TryAcquire(ctx context.Context) (*Hold, error) {
	return m.acquire(ctx, "try", (*cohort).try)
}

func (m *Mutex) acquire(ctx context.Context, op string,
	take func(*cohort, context.Context, *Mutex) (*ownership, time.Duration, error),
) (*Hold, error) {
	if m.invalid != nil {
		return nil, m.invalid
	}
	hold, err := m.reenter(ctx)
	if err != nil {
		return nil, m.at.failure(op, err)
	}
	if hold != nil {
		return m.traced(hold), nil
	}
	r := m.registry
	c, ok := r.join(m.at, nil).(*cohort)
	if !ok {
		return nil, m.at.failure(op, ErrClosed)
	}
	own, begun, err := take(c, ctx, m)
	if err != nil {
		c.part()
		return nil, r.failed(ctx, op, m.at.path, begun, err)
	}
	hold = &own.first
	if r.options.observer != nil {
		own.watch = r.watch(ctx, AcquiredEvent{Path: m.at.path, Hold: hold, From: sources[own.source]}, begun, own.since)
		own.watch.acquired(own.grant.Context(), hold.Release)
	}
	return m.traced(hold), nil
}

// reenter returns another hold if ctx carries a live one that lets it, neither hold nor error if
// there is none.
func (m *Mutex) reenter(ctx context.Context) (*Hold, error) {
	if outer := HoldFrom(ctx, m); outer != nil {
		if err := outer.own.grant.Err(); errors.Is(err, ErrLost) {
			return nil, err
		}
		if ctx.Err() == nil {
			if hold, err := outer.own.reenter(m.reads()); hold != nil || err != nil {
				return hold, err
			}
		}
	}
	return nil, context.Cause(ctx)
}

// Do calls f while it holds the lock. The context of f carries the hold, for [HoldFrom], and is
// cancelled if the lock is lost. It derives from ctx, whose deadline therefore limits the wait
// and the work together; [WithMaxWait] limits the wait alone.
//
// If the lock could not be acquired, Do returns the error of Acquire without calling f. Otherwise it returns the error of f, unchanged, if
// the release succeeds; the error of the release if f returns nil; and else an error that wraps both.
//
// If the lock is lost, f goes on until it returns: let it stop when its context ends. Do returns an error that wraps [ErrLost] then.
//
// Caution: goroutines that f starts with its context, such as those of an errgroup, share the hold. They are not excluded from each other;
// see [Hold.Context].
func (m *Mutex) Do(ctx context.Context, f func(ctx context.Context) error) (err error) {
	hold, err := m.Acquire(ctx)
	if err != nil {
		return err
	}
	defer func() { err = both(err, hold.Release()) }()
	return f(hold.Context(ctx))
}

// both returns an error that wraps those that are not nil: the only one itself.
func both(err, other error) error {
	if err == nil || other == nil {
		return cmp.Or(err, other)
	}
	return errors.Join(err, other)
}

// Contenders returns the queue of processes for the lock, the holder first. A lock that was
// never used has none. It waits for a store that cannot be reached until ctx is done; the
// error then wraps its cause.
func (m *Mutex) Contenders(ctx context.Context) ([]Contender, error) {
	if m.invalid != nil {
		return nil, m.invalid
	}
	all, err := m.claim.Contenders(ctx)
	queue := contenders(all)
	m.registry.mu.RLock()
	c, here := m.registry.stakes[m.at].(*cohort)
	m.registry.mu.RUnlock()
	if here {
		ours, _ := c.heldLock()
		for i, one := range queue {
			if one.Token == ours.Token && ours.Lingering {
				queue[i].Lingering = true
			} else if one.Token == ours.Token {
				queue[i].HeldSince = ours.Since
			}
		}
	}
	return queue, err
}

// Revoke asks whoever has the lock to give it up, in this process or another; all of them if they
// read. It is a request: a program that listens to [Hold.RevokeRequested] may do as it likes, and nothing
// comes of it if nobody has the lock, or listens. A lock that is only kept ([WithLinger]) goes at once.
// In ZooKeeper the request is that of Curator's Revoker, which it can be used with both ways; it takes
// the permission to write to the holder's node.
//
// Revoke waits for a store that cannot be reached until ctx is done; the error then wraps its cause.
func (m *Mutex) Revoke(ctx context.Context) error {
	if m.invalid != nil {
		return m.invalid
	}
	return m.claim.Revoke(ctx)
}

// Break takes the lock away from whoever has it under a token, also in another process: it removes the contender with that token
// from the queue. The token is that of [Hold.Token], and [Mutex.Contenders] shows it; it may also be that of one reader of several,
// or of a process that waits, which then queues again as the last one.
//
// Caution: the next process has the lock at once, while the former holder may still be at work. That hears of its loss, with
// [LossByDeletion], when the store tells it: mostly at once, but up to a third of its lease later, and not at all while it is cut off or
// stopped. So break a lock only if its holder is known to be dead or stopped, and have the resource check tokens.
//
// A token names one contender, so Break never removes another one, whatever becomes of the queue or of an answer meanwhile. It returns
// nil once the contender that it found is gone, whoever removed it. If it finds none with that token, the error wraps [ErrReleased]:
// to call Break again does no harm. It waits for a store that cannot be reached until ctx is done; the error then wraps its cause, and
// [ErrUnavailable], and the contender may still be removed. A missing permission is an error at once. Advisory locks of PostgreSQL cannot
// be broken: the error wraps [errors.ErrUnsupported].
func (m *Mutex) Break(ctx context.Context, token int64) error {
	if m.invalid != nil {
		return m.invalid
	}
	return m.claim.Break(ctx, token)
}

// An RWMutex is a reader/writer lock: any number of goroutines and processes may read at the same
// time, and one writes alone. It has two sides, each a [Mutex]; what asks for the queue, or for the lock,
// is the same on both. However many goroutines of a process read, or wait to, the process is one
// contender in the store. It is safe for concurrent use.
//
// Within a process it is phase-fair. Whoever comes waits behind those who wait; when the turn comes
// it is that of one writer, or of all readers up to the next writer. A reader joins those inside if
// nobody waits in this process, and no other process has waited for longer than the hand-off budget
// ([WithHandOff]): then those inside come to an end, and the lock goes on. So readers that overlap
// without end keep no writer out: in the store it waits, for each process ahead, for the budget and
// what was begun by then. If a writer is among those who wait in a process, the process
// queues as a writer for all of them.
//
// The lock can be entered again like a [Mutex], in both modes, with two rules. A writer may become
// a reader: acquire to read with the context of the hold to write, then release the latter. That
// sends nothing; the process still has the lock as a writer, and lets its own readers in. When
// readers of another process are next and have waited for the budget (for two if somebody waits
// here, too), they are let in as well. The context of the hold to write ends with its release, so what
// is read under needs one of its own: read.Context(ctx), with a ctx that does not come from the writer's.
// To read within Do of the writer is no downgrade: until Do returns, the lock is held to write.
//
// A reader cannot become the writer: to acquire to write with the context of a hold to read is
// [ErrCannotUpgrade], at once. With any other context the call waits until all readers have left, and so for
// itself if it is one of them.
//
// A Mutex of the same path is another lock, which excludes this one, also within a process. In
// ZooKeeper the contenders are those of Curator's InterProcessReadWriteLock; docs/interop.md says who
// excludes whom.
//
// The token of a writer is never lower than that of anybody who had the lock before, nor higher than
// that of anybody who has it after; to another process it differs. Among readers that overlap, tokens
// say nothing. So a resource is safe from those who do not know yet that they lost the lock if it
// refuses a write whose token is lower than the highest it has seen, and a read whose token is
// lower than the highest it has seen of a writer.
type RWMutex struct{ writer, reader *Mutex }

// RWMutex returns the reader/writer lock at path. Options are as with [Registry.Mutex], and errors
// are reported likewise.
func (r *Registry) RWMutex(path string, opts ...Option) *RWMutex {
	at := lockKey{path, readWrite}
	return &RWMutex{r.mutex(at, second.Writing, opts), r.mutex(at, second.Reading, opts)}
}

// Acquire acquires the lock to write, like [Mutex.Acquire] of [RWMutex.Writer].
func (m *RWMutex) Acquire(ctx context.Context) (*Hold, error) { return m.writer.Acquire(ctx) }

// RAcquire acquires the lock to read, like [Mutex.Acquire] of [RWMutex.Reader].
func (m *RWMutex) RAcquire(ctx context.Context) (*Hold, error) { return m.reader.Acquire(ctx) }

// Do calls f while it holds the lock to write, like [Mutex.Do] of [RWMutex.Writer].
func (m *RWMutex) Do(ctx context.Context, f func(ctx context.Context) error) error {
	return m.writer.Do(ctx, f)
}

// RDo calls f while it holds the lock to read, like [Mutex.Do] of [RWMutex.Reader].
func (m *RWMutex) RDo(ctx context.Context, f func(ctx context.Context) error) error {
	return m.reader.Do(ctx, f)
}

// Writer returns the side of the lock that writes.
func (m *RWMutex) Writer() *Mutex { return m.writer }

// Reader returns the side of the lock that reads. Its TryAcquire returns [ErrLocked] if somebody
// has the lock to write, or waits for that; or reads after it wrote, as long as no reader of another
// process has waited for the budget. Within a process it also does while readers are inside whom nobody
// may join any more: another process has waited for the budget, or one of them was told that the lock is
// wanted elsewhere ([Hold.Contended], [Hold.RevokeRequested]).
func (m *RWMutex) Reader() *Mutex { return m.reader }
