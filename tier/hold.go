package tier

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/internal/second"
)

// An ownership is one turn behind the gate. All holds of one call tree share it; the
// lock goes when the last of them is released.
type ownership struct {
	mutex  *Mutex // by way of which it came
	cohort *cohort
	grant  second.Grant
	since  time.Duration // on the clock of the leases
	source source        // beside reads, as there may be very many of these
	reads  atomic.Bool   // from the beginning, or by now
	holds  atomic.Int64  // not released yet: those that read, and writeHold for each of the others; 0 is final
	first  Hold          // kept here to save an allocation
	watch  *watch        // for the observer; nil if there is none
}

const writeHold = 1 << 32

// weight is what a hold counts in holds.
func weight(reads bool) int64 {
	if reads {
		return 1
	}
	return writeHold
}

// reenter adds a hold, unless the last one has been released. Who only reads does not get one to
// write.
func (o *ownership) reenter(reads bool) (*Hold, error) {
	for {
		n := o.holds.Load()
		switch {
		case n == 0:
			return nil, nil
		case n < writeHold && !reads:
			return nil, ErrCannotUpgrade
		}
		if o.holds.CompareAndSwap(n, n+weight(reads)) {
			return &Hold{own: o, shared: reads}, nil
		}
	}
}

// count returns how many holds were not released.
func (o *ownership) count() int {
	n := o.holds.Load()
	return int(n/writeHold + n%writeHold)
}

// A Hold is one acquisition of a lock. It must be released exactly once. Its methods
// may be called concurrently.
//
// Writes that take effect only under the lock are zklock.Multi, etcdlock.Txn, pglock.Tx and redislock.Eval, for data in the same
// store: see [Guard]; other resources compare [Hold.Token]. [Hold.ReleaseAt] keeps the lock for a minimum time. [WithoutHold]
// makes of a context with a hold one that acquires anew, and [Name] of any text a path.
type Hold struct {
	own      *ownership
	shared   bool // it reads
	traced   bool // see [WithLeakDetection]
	released atomic.Bool
	bundle   atomic.Pointer[Bundle] // that it belongs to; nil if none
	work     contexts
}

// Lost returns a channel that is closed when the lock is no longer certain to be ours,
// before the store can give it to anybody else. If an operator deletes the contender, the
// channel is closed a little later than that. A release does not close it, unless it finds the lock lost;
// after the release it says nothing, as goroutines of this process may have the lock in turn.
func (h *Hold) Lost() <-chan struct{} { return h.own.grant.Context().Done() }

// Err returns nil while the lock is held, an error wrapping [ErrLost] once it is lost,
// and [ErrReleased] once this hold was released. It reads the clock itself, so it is
// right from the first instruction of a process that was stopped and continued, and of a machine that was suspended.
func (h *Hold) Err() error {
	err := h.own.grant.Err()
	if h.released.Load() { // asked last: the end of a node that was given up is no loss
		return ErrReleased
	}
	return err
}

// ValidUntil returns up to when the lock is certainly ours, unless an operator deletes its
// contender: the end of the lease as far as it is renewed now, by this process's clock. While the
// store answers it moves on, so ask again rather than keep it. It is the zero time once the lock is
// lost or this hold is released, and always if there is no lease (package dropin).
//
// Caution: package time does not count the sleep of the machine. After a suspend, a time that you kept still seems to lie ahead.
func (h *Hold) ValidUntil() time.Time {
	if h.released.Load() {
		return time.Time{}
	}
	return h.own.grant.ValidUntil()
}

// Token returns the fencing token. Use it wherever a write that comes late does harm: a process can be stopped after it has looked at the
// lock, and writes when another process has it. Guarded writes need no token; see [Guard].
//
// The token is positive, the same for all holds of one ownership,
// never lower than that of any owner before, and higher than that of any owner in
// another process before. A resource that refuses tokens lower than the highest it has
// seen is safe from owners that do not know yet that they lost the lock.
//
// A store that lost its data starts with low tokens again, and such a resource then refuses
// everybody. An operator then ends every process that may have held the lock before, and only
// then resets the highest token that the resource remembers.
func (h *Hold) Token() int64 { return h.own.grant.Token() }

// Shared reports whether the hold is one to read, of an [RWMutex].
func (h *Hold) Shared() bool { return h.shared }

// Contended ends local hand-off for this lock once another process waits: the next release then gives the lock up, whatever the budget of
// [WithHandOff], and no more readers join. That holds for all goroutines that have the lock in turn, from the first call of Contended until
// the lock leaves the process.
//
// The channel is closed when another process is known to wait because of this one; goroutines of this process do not count. It is for a
// program that can stop early. It does not open again, even if the other process has given up since. The first call costs the store a
// read and a watch.
//
// Two processes that both release as soon as they are told get one step of work done in each turn. Work
// for a minimum time before you look.
//
// A process that reads is not in the way of others that read. When the lock of a writer has become
// one to read, as [RWMutex] says, the channel is another one.
func (h *Hold) Contended() <-chan struct{} { return h.own.cohort.contendedOf(h.own.grant) }

// RevokeRequested ends local hand-off for this lock once the lock has been asked for: the next release then gives the lock up, and no more
// readers join. Nothing is taken away: it is for the program to release the lock.
//
// The channel is closed once somebody has called [Mutex.Revoke], or in ZooKeeper Curator's Revoker. A process in which RevokeRequested is
// not called ignores such requests. In ZooKeeper the first call costs a read and a watch.
func (h *Hold) RevokeRequested() <-chan struct{} { return h.own.cohort.revokedOf(h.own.grant) }

// Path returns the path of the lock.
func (h *Hold) Path() string { return h.own.cohort.key.path }

// Release ends this hold. With the last hold of the ownership the lock goes: first the
// contender, then the gate. Release takes no context. In an outage it waits for the store for the
// time of [WithReleaseTimeout], a third of the lease TTL by default. After that it returns, and the contender is removed in the background
// or goes with its session. A guarded write that has not been answered keeps the lock from being handed
// off within the process.
//
// It returns nil if the lock was ours to the end, an error wrapping [ErrLost] if it was
// lost before, and [ErrReleased], without any effect, if this hold was released before. In any
// case the hold is over. Without a lease (package dropin) only the server knows whether the
// lock was ours: if it does not answer, the error says so; and before the lock is handed off
// within the process, Release waits for the answer, for a second at most.
func (h *Hold) Release() error {
	if h.released.Swap(true) {
		return ErrReleased
	}
	c, life := h.own.cohort, h.own.grant.Context()
	if h.traced {
		c.registry.leaks.released(h)
	}
	h.work.end(life)
	rest := h.own.holds.Add(-weight(h.shared))
	if rest == 0 {
		defer c.part()
		released := h.own.watch.releasing()
		err := c.release(h.own)
		released(err)
		return err
	}
	if rest < writeHold && !h.shared {
		c.mu.Lock()
		c.downgradeLocked(h.own)
		c.mu.Unlock()
	}
	h.own.grant.Err() // looks at the clock: the machine may have slept through the end of the lease
	return context.Cause(life)
}

// ReleaseAt is Release at t, in the background: the lock has been held for a minimum time, and
// nobody has to wait for that. Until then the hold goes on, with its contexts; Release ends it
// earlier. What Release would return at t is dropped.
//
// If t has passed it is Release itself, with its errors. Otherwise it returns nil.
func (h *Hold) ReleaseAt(t time.Time) error {
	if time.Until(t) > 0 && h.own.cohort.spawn(func() {
		retry.Pause(h.Context(context.Background()), time.Until(t)) // less if it is lost, or released meanwhile
		h.Release()                                                 // also gives a lost contender up
	}) {
		return nil
	}
	return h.Release() // also if the registry is closed
}

// An ownerKey is where a context carries the hold of a lock.
type ownerKey struct {
	registry *Registry
	lockKey
}

// HoldFrom returns the hold of m that ctx carries, as the context of [Mutex.Do] and that of
// [Hold.Context] do; nil if it carries none, or one that was released. It is not another hold:
// whoever made it releases it.
func HoldFrom(ctx context.Context, m *Mutex) *Hold {
	if hold, _ := ctx.Value(m.key).(*Hold); hold != nil && !hold.released.Load() {
		return hold
	}
	return nil
}

// WithoutHold returns ctx without the holds it carries, for goroutines that are started under a
// lock and must not share it: with it they wait for the lock like any other goroutine. Values and
// cancellation stay. Therefore it ends with the hold, if ctx does.
//
// Caution: a holder that waits for such a goroutine, as in Wait of an errgroup, waits for itself. For goroutines that take the lock in
// turn, start the group with a context from before the acquisition, and without the lock.
func WithoutHold(ctx context.Context) context.Context { return withoutHold{ctx} }

type withoutHold struct{ context.Context }

func (c withoutHold) Value(key any) any {
	if _, ok := key.(ownerKey); ok {
		return nil
	}
	return c.Context.Value(key)
}

// Context returns a context for work under the lock, derived from ctx. Acquiring the
// same lock with it enters again. It is cancelled when the lock is lost, with an error
// wrapping [ErrLost] as its cause, and when the hold is released, with [ErrReleased]; if
// that has happened, it is done when Context returns.
//
// Caution: goroutines that share this context, such as those of an errgroup, share the hold. They are not excluded from each other. Give a
// goroutine that has to compete for the lock [WithoutHold] of the context.
//
// Derive it from a context that lives as long as the work, not from one whose deadline
// was meant for the wait. The same ctx gives the same context, so that a hold that lasts
// may be asked any number of times. Of those whose ctx has ended the hold keeps no more than
// of those that live, or eight, and none once it is released.
func (h *Hold) Context(ctx context.Context) context.Context {
	carry := func(ctx context.Context) context.Context { return context.WithValue(ctx, h.own.mutex.key, h) }
	return h.work.under(ctx, h.own.grant.Context(), h.Err, carry)
}
