package tier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// A Mutex is a lock at one path of a registry. It is safe for concurrent use. It is not a sync.Locker, because acquiring and releasing
// can fail.
type Mutex struct {
	registry *Registry
	at       lockKey
	mode     second.Mode
	options  *options
	claim    second.Claim
	invalid  error // why the path or an option cannot be used; nil if all can be used
	key      any   // an ownerKey
}

// Mutex returns the lock at path. It sends no request, is cheap, and needs no Close. opts apply to this Mutex only and override the
// options of the registry. On release, the options of the Mutex that acquired the lock decide whether it is handed off, kept or released.
// All Mutexes of one path share one local queue.
//
// If the path cannot be a lock, or an option is wrong, the methods of the Mutex return an error.
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

// Acquire blocks until it holds the lock or ctx ends. It retries while the store cannot be reached. An uncontended acquisition takes one
// round trip; see the package documentation for the cost.
//
// If ctx comes from [Hold.Context] of an unreleased hold of this lock, Acquire does not block. It returns another hold of the same lock,
// or [ErrLost] if the lock is lost. Caution: with any other context, a goroutine that already holds the lock deadlocks. If a goroutine
// waits for 10 s behind one hold of its own process, a warning is logged. This warning is logged once per hold, and at most once per path
// and hour. Two goroutines that wait for each other's locks cause the same warning: use [AcquireAll] instead.
//
// If the wait ends without the lock, the error is a [*WaitError]. The error names the holder, or the process ahead in the queue, if this
// process knows them. The error wraps context.Cause(ctx), [ErrWaitLimit] after the time of [WithMaxWait], or [ErrClosed]. If the store
// cannot be reached or is in a grace period, the error also wraps this reason. If retrying cannot fix an error, such as a missing
// permission, all waiters of this process for the lock that have the same options get the error. After any error the queue entry is
// deleted, in the background if the store does not answer.
func (m *Mutex) Acquire(ctx context.Context) (*Hold, error) {
	return m.acquire(ctx, "acquire", (*cohort).enter)
}

// TryAcquire is like Acquire, but does not wait for other holders. If TryAcquire fails, its error wraps one of these:
//
//   - [ErrLocked] if another goroutine or process holds the lock, waits for it, or stopped waiting a moment ago;
//   - [ErrLocked] and a [*GracePeriodError] while the store grants no lock after its start or a failover;
//   - [ErrUnavailable] while the store cannot be reached or refuses requests;
//   - [ErrLost] if ctx carries a hold that was lost, and [ErrClosed] if the registry is closed;
//   - the cause of ctx, or an error that a retry cannot fix, such as a missing permission.
//
// If another goroutine of this process has the lock, TryAcquire sends no request. In all other cases TryAcquire takes one round trip, and
// on ZooKeeper a second one if the lock is free.
//
// TryAcquire fails at once while [Registry.Err] reports that the store cannot be reached. If the store has just stopped answering,
// TryAcquire blocks until the outage is noticed, at most until ctx ends. If another goroutine of this process begins to wait for the lock
// during this time, TryAcquire returns ErrLocked after a second.
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

// reenter returns another hold if ctx carries an unreleased hold that permits it. If ctx carries no such hold, reenter returns neither a
// hold nor an error.
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

// Do acquires the lock, calls f, and releases the lock. The context of f carries the hold, for [HoldFrom], and is cancelled if the lock is
// lost. The context of f derives from ctx, so a deadline of ctx limits the wait and the work together. [WithMaxWait] limits only the wait.
//
// If the lock could not be acquired, Do returns the error of Acquire and does not call f. If the lock was acquired, Do returns the error
// of f, or the error of the release. If both fail, the returned error wraps both errors.
//
// If the lock is lost, f is not interrupted: let f return when its context ends. Do then returns an error that wraps [ErrLost].
//
// Caution: goroutines that f starts with its context, for example in an errgroup, share the hold. These goroutines do not exclude each
// other; see [Hold.Context].
func (m *Mutex) Do(ctx context.Context, f func(ctx context.Context) error) (err error) {
	hold, err := m.Acquire(ctx)
	if err != nil {
		return err
	}
	defer func() { err = both(err, hold.Release()) }()
	return f(hold.Context(ctx))
}

// both(err, other) returns an error that wraps err and other. If one of them is nil, the result is the other one, unchanged.
func both(err, other error) error {
	if err == nil || other == nil {
		return cmp.Or(err, other)
	}
	return errors.Join(err, other)
}

// Contenders returns the queue of processes for the lock, the holder first. The queue of a free lock is empty. Contenders sends one read
// request, and on ZooKeeper another one for each process in the queue. While the store cannot be reached, it blocks until ctx ends; the
// error then wraps the cause of ctx. Other errors are [ErrClosed], and errors that retrying cannot fix, such as a missing permission.
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

// Revoke asks the holder to release the lock, or all readers if readers hold it. The holder may be in this process or in another one. The
// request is cooperative: the holder learns of it through [Hold.RevokeRequested], and may ignore it. Revoke has no effect on a free lock.
// If a process only keeps the lock idle ([WithLinger]), it releases the lock at once.
//
// On ZooKeeper, Revoke and Curator's Revoker use the same request, so each library can ask holders of the other library. The request needs
// the permission to write to the holder's node. While the store cannot be reached, Revoke blocks until ctx ends; the error then wraps the
// cause of ctx, and the request may still take effect. Other errors are those of [Mutex.Contenders].
func (m *Mutex) Revoke(ctx context.Context) error {
	if m.invalid != nil {
		return m.invalid
	}
	return m.claim.Revoke(ctx)
}

// Break removes the contender with the given token from the queue, and so takes the lock from it. The contender may belong to another
// process. [Mutex.Contenders] shows the token of each contender; for a holder it is [Hold.Token]. On ZooKeeper, a writer that has
// downgraded to a reader may have another token than its hold: use the token that Contenders shows. All goroutines of a process are one
// contender.
//
// A holder or reader that Break removes has lost the lock. The context of its hold ends, and [Hold.Err] and [Hold.Release] return an error
// that wraps [ErrLost]. Observers get the cause [LossByDeletion]. Other readers keep the lock. If Break removes a waiter, the waiter queues
// again at the end of the queue.
//
// Caution: the next contender gets the lock at once, although the former holder may still be working. The former holder learns of its loss
// when the store notifies it, usually at once, and at most a third of its lease later. A process that is paused or cut off learns nothing
// until it continues. Break only the lock of a process that is dead or paused. Use guarded writes: the store refuses guarded writes of the
// former holder.
//
// A token belongs to one contender, and Break removes only this contender. While the store cannot be reached, Break waits until ctx ends.
// It returns nil once the contender is removed. Otherwise the error wraps:
//   - [ErrReleased] if no contender has the token, for example because the holder has just released the lock.
//   - [ErrUnknown] if the answer is lost and ctx ends before a retry is answered. The contender may have been removed, or may still be
//     removed. Call Break again: [ErrReleased] then means that the contender is removed.
//   - the cause of ctx, together with [ErrUnavailable] if the store could not be reached; [ErrClosed]; or an error of the store, such as a
//     missing permission, which Break returns at once. If the error does not wrap ErrUnknown, Break has not removed a contender.
//   - [errors.ErrUnsupported] for an advisory lock of PostgreSQL.
//
// In ZooKeeper and etcd, Break also removes contenders of other libraries. In Redis, contenders of other libraries have no token.
func (m *Mutex) Break(ctx context.Context, token int64) error {
	if m.invalid != nil {
		return m.invalid
	}
	return m.claim.Break(ctx, token)
}

// An RWMutex is a reader/writer lock: any number of goroutines and processes can hold it for reading, or one goroutine for writing. An
// RWMutex consists of two Mutexes, [RWMutex.Writer] and [RWMutex.Reader]. A process has one queue entry, however many of its goroutines
// read or wait. An RWMutex is safe for concurrent use.
//
// Writers are not starved: once another process has waited for the hand-off budget ([WithHandOff]), new readers queue after that process.
// In the store, a writer waits for one budget for each process ahead of it, and for the sections that began in that time. Within a
// process, waiting goroutines get the lock in the order of arrival; consecutive readers get it together. If a writer is among the waiting
// goroutines of a process, the process queues as a writer, also for its readers.
//
// Reentrancy: with the context of a hold, you can acquire the same side again. For the other side there are two rules.
//
//   - A writer can downgrade: acquire the reader with the context of the write hold, then release the write hold. The downgrade sends no
//     request, and other readers of this process can join. Readers of other processes can join once they are next in the queue and have
//     waited for as long as the hand-off budget. If goroutines of this process also wait for the lock, readers of other processes can join
//     after twice the budget. The context of the write hold ends with its release. Therefore call read.Context with a context that does not
//     derive from the writer's context. Inside Do of the writer there is no downgrade, because Do holds the write lock until f returns.
//   - A reader cannot upgrade: acquiring the writer with the context of a read hold returns [ErrCannotUpgrade] at once. Caution: with any
//     other context, a goroutine that holds the read lock and acquires the writer deadlocks.
//
// A Mutex and an RWMutex of the same path are different locks that exclude each other, also within a process. On ZooKeeper an RWMutex
// shares the path with Curator's InterProcessReadWriteLock; docs/interop.md lists all combinations.
//
// Fencing: the token of a writer is higher than the tokens of all earlier holders in other processes. The token of a writer is never
// higher than the token of a later holder. Tokens of overlapping readers have no order. Let the resource refuse a write with a token that
// is lower than the highest token it has seen. Let it refuse a read with a token that is lower than the highest token of a writer it has
// seen.
type RWMutex struct{ writer, reader *Mutex }

// RWMutex returns the reader/writer lock at path. It sends no request. Options and errors are the same as for [Registry.Mutex].
func (r *Registry) RWMutex(path string, opts ...Option) *RWMutex {
	at := lockKey{path, readWrite}
	return &RWMutex{r.mutex(at, second.Writing, opts), r.mutex(at, second.Reading, opts)}
}

// Acquire acquires the lock for writing, like [Mutex.Acquire] of [RWMutex.Writer].
func (m *RWMutex) Acquire(ctx context.Context) (*Hold, error) { return m.writer.Acquire(ctx) }

// RAcquire acquires the lock for reading, like [Mutex.Acquire] of [RWMutex.Reader].
func (m *RWMutex) RAcquire(ctx context.Context) (*Hold, error) { return m.reader.Acquire(ctx) }

// Do calls f while it holds the lock for writing, like [Mutex.Do] of [RWMutex.Writer].
func (m *RWMutex) Do(ctx context.Context, f func(ctx context.Context) error) error {
	return m.writer.Do(ctx, f)
}

// RDo calls f while it holds the lock for reading, like [Mutex.Do] of [RWMutex.Reader].
func (m *RWMutex) RDo(ctx context.Context, f func(ctx context.Context) error) error {
	return m.reader.Do(ctx, f)
}

// Writer returns the writing side of the lock.
func (m *RWMutex) Writer() *Mutex { return m.writer }

// Reader returns the reading side of the lock. Its TryAcquire returns [ErrLocked] if a writer holds the lock or waits for it. For other
// processes, a process that has downgraded counts as a writer until a reader of another process has waited for the hand-off budget. The
// TryAcquire also returns [ErrLocked] if the present readers admit no further readers. Readers admit no further readers once another
// process has waited for the budget, or once a reader's channel of [Hold.Contended] or [Hold.RevokeRequested] is closed.
func (m *RWMutex) Reader() *Mutex { return m.reader }
