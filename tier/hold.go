package tier

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/internal/second"
)

// An ownership is one acquisition behind the gate. All holds of one call tree share it, and the release of the last hold releases the lock.
type ownership struct {
	mutex  *Mutex // the mutex that was used to acquire it
	cohort *cohort
	grant  second.Grant
	since  time.Duration // on the clock of the leases
	source source        // placed next to reads to save memory, because a program may have very many ownerships
	reads  atomic.Bool   // the ownership reads: from the beginning, or since a downgrade
	holds  atomic.Int64  // the sum of the weights of the unreleased holds; once it is 0, it stays 0
	first  Hold          // the first hold is kept here to save an allocation
	watch  *watch        // reports to the observer; nil if there is no observer
}

const writeHold = 1 << 32

// weight returns what a hold adds to the sum in ownership.holds.
func weight(reads bool) int64 {
	if reads {
		return 1
	}
	return writeHold
}

// reenter adds a hold, unless the last hold has been released. If the ownership only reads, reenter adds no hold to write.
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

// count returns the number of unreleased holds.
func (o *ownership) count() int {
	n := o.holds.Load()
	return int(n/writeHold + n%writeHold)
}

// A Hold is one successful acquisition of a lock. Release it exactly once. Its methods may be called concurrently.
//
// To keep out late writes of former holders, pass [Hold.Token] to the resource, or use a guarded write: see [Guard].
type Hold struct {
	own      *ownership
	shared   bool // this is a read hold
	traced   bool // see [WithLeakDetection]
	released atomic.Bool
	bundle   atomic.Pointer[Bundle] // the bundle of this hold; nil if there is none
	work     contexts
}

// Lost returns a channel that is closed when the lock is lost, before the store can grant the lock to another process. If an operator
// deletes the queue entry, the channel is closed a little after the store grants the lock to the next process. Release does not close the
// channel, unless Release finds that the lock is lost. Do not use the channel after Release, because other goroutines of this process may
// then hold the lock.
func (h *Hold) Lost() <-chan struct{} { return h.own.grant.Context().Done() }

// Err returns nil while the lock is held, an error that wraps [ErrLost] once the lock is lost, and [ErrReleased] once this hold is
// released. Err checks the clock at each call and sends no request. Therefore its result is right immediately after a pause of the process
// or a suspend of the machine.
func (h *Hold) Err() error {
	err := h.own.grant.Err()
	if h.released.Load() { // checked last: after a release, the end of the contender is no loss
		return ErrReleased
	}
	return err
}

// ValidUntil returns the end of the lease by this process's clock. Until then the lock is held, unless an operator deletes its queue
// entry. Renewals extend the lease, so call ValidUntil again instead of keeping the result. ValidUntil returns the zero time once the lock
// is lost or this hold is released. Locks of package dropin have no lease and always return the zero time.
//
// Caution: package time does not count the sleep of the machine. After a suspend, a result that you kept can seem to lie in the future.
func (h *Hold) ValidUntil() time.Time {
	if h.released.Load() {
		return time.Time{}
	}
	return h.own.grant.ValidUntil()
}

// Token returns the fencing token, a positive number. The token is higher than the tokens of all earlier owners in other processes, and
// never lower than the token of an earlier owner in this process. Nested holds have the same token. If a resource refuses every token that
// is lower than the highest token it has seen, late writes of former holders do no harm.
//
// Use the token wherever a late write does harm. A process can be paused after it has checked the lock, and its write then arrives when
// another process holds the lock. Guarded writes need no token; see [Guard].
//
// Caution: a store that lost its data issues low tokens again, and the resource then refuses all writes. To recover, first end every
// process that may have held the lock. Then reset the highest token that the resource has stored.
func (h *Hold) Token() int64 { return h.own.grant.Token() }

// Shared reports whether this is a read hold of an [RWMutex].
func (h *Hold) Shared() bool { return h.shared }

// Contended returns a channel that is closed when another process waits for the lock that this hold belongs to. Use the channel in a
// program that can release early. The channel stays closed, even if the other process gives up. The first call sends the store a read and a
// watch.
//
// Caution: a call of Contended changes how the process hands the lock off. Once another process waits, the next release gives the lock to
// that process, even if the budget of [WithHandOff] is not used up. No more readers join. This applies to all goroutines of the process,
// until another process gets the lock.
//
// Caution: if every process releases as soon as the channel is closed, each does only one step of work per acquisition. Work for a
// minimum time before you check the channel.
//
// If this is a read hold, the channel is not closed because of other readers that wait. After a downgrade (see [RWMutex]), call Contended
// again, because it then returns another channel.
func (h *Hold) Contended() <-chan struct{} { return h.own.cohort.contendedOf(h.own.grant) }

// RevokeRequested returns a channel that is closed when [Mutex.Revoke], "tierlock revoke" or Curator's Revoker has asked for the lock. The
// holder does not lose the lock: the program decides whether to release it. A process that does not call RevokeRequested ignores such
// requests. On ZooKeeper the first call sends a read and a watch.
//
// After RevokeRequested was called and a request has arrived, the process hands the lock off no more: the next release gives the lock to
// the next process, and no more readers join.
func (h *Hold) RevokeRequested() <-chan struct{} { return h.own.cohort.revokedOf(h.own.grant) }

// Path returns the path of the lock.
func (h *Hold) Path() string { return h.own.cohort.key.path }

// Release ends this hold. After reentrant acquisitions, the lock is released with the last hold. It then goes to the next goroutine or
// process. Release takes one round trip, or none if the lock stays in the process. If the store does not answer, Release returns after
// [WithReleaseTimeout], a third of the lease TTL by default. The queue entry is then deleted in the background, or ends with the session.
//
// Release returns nil if the lock was held until now, and an error that wraps [ErrLost] if the lock was lost. If this hold was released
// before, Release returns [ErrReleased] and has no effect. If the store refuses to delete the queue entry, for example because of a missing
// permission, Release returns that error; the entry then blocks the lock until the session ends. After every result the hold is released.
//
// Locks of package dropin have no lease, so only the server knows whether the lock was still held. If the server does not answer, Release
// returns an error that says so. Before it hands such a lock off locally, Release waits up to a second for the server's answer. If the
// outcome of a guarded write is unknown, Release does not hand the lock off locally.
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
	h.own.grant.Err() // checks the clock, because the lease may have ended while the machine slept
	return context.Cause(life)
}

// ReleaseUnsettled is [Hold.Release] for a holder whose last write may still be under way, for example after a timeout. The lock is not
// handed off within this process. It goes back to the store, and the next owner has a higher token, also if it is a goroutine of this
// process. A resource that refuses lower tokens therefore refuses the late write.
//
// ReleaseUnsettled takes one round trip and returns the same errors as Release. If other holds of the same ownership remain, the lock is
// given back after the release of the last of them.
func (h *Hold) ReleaseUnsettled() error {
	if !h.released.Load() { // otherwise another owner may use the grant
		h.own.grant.Unsettle()
	}
	return h.Release()
}

// ReleaseAt releases the hold at t, in the background, and returns nil at once. Use it to hold a lock for a minimum time. The hold and its
// contexts stay valid until t, or until Release is called. The error of the release at t is discarded. If t is in the past, ReleaseAt is
// the same as Release.
func (h *Hold) ReleaseAt(t time.Time) error {
	if time.Until(t) > 0 && h.own.cohort.spawn(func() {
		retry.Pause(h.Context(context.Background()), time.Until(t)) // shorter if the lock is lost or the hold is released before t
		h.Release()                                                 // also removes the contender of a lost lock
	}) {
		return nil
	}
	return h.Release() // the time has passed, or the registry is closed
}

// An ownerKey is the key under which a context carries the hold of a lock.
type ownerKey struct {
	registry *Registry
	lockKey
}

// HoldFrom returns the hold of m that ctx carries. It returns nil if ctx carries no hold of m, or if that hold is released. The contexts of
// [Mutex.Do] and [Hold.Context] carry holds. Do not release the hold that HoldFrom returns, because its owner releases it.
func HoldFrom(ctx context.Context, m *Mutex) *Hold {
	if hold, _ := ctx.Value(m.key).(*Hold); hold != nil && !hold.released.Load() {
		return hold
	}
	return nil
}

// WithoutHold returns a copy of ctx that carries no holds. Use it for a goroutine that is started under the lock but has to compete for
// it: with this context, Acquire waits like in any other goroutine. The copy keeps the values and the cancellation of ctx. If ctx is the
// context of a hold, the copy therefore also ends at the release of that hold.
//
// Caution: if a holder waits for such a goroutine, for example in Wait of an errgroup, both deadlock. If the goroutines of a group have to
// acquire the lock one after another, start the group before you acquire the lock, with a context that carries no hold.
func WithoutHold(ctx context.Context) context.Context { return withoutHold{ctx} }

type withoutHold struct{ context.Context }

func (c withoutHold) Value(key any) any {
	if _, ok := key.(ownerKey); ok {
		return nil
	}
	return c.Context.Value(key)
}

// Context returns a context for work under the lock, derived from ctx. [Mutex.Acquire] of the same lock with this context does not block.
// The context is cancelled when the lock is lost, with a cause that wraps [ErrLost], and when the hold is released, with the cause
// [ErrReleased]. If the hold is already lost or released, the returned context is already cancelled.
//
// Caution: goroutines that share this context, for example in an errgroup, share the hold and do not exclude each other. If a goroutine
// has to compete for the lock, pass it the result of [WithoutHold].
//
// Choose a ctx that lives as long as the work. Do not use a ctx whose deadline is meant for the wait. Calls with the same ctx return the
// same context. Context may be called any number of times: the hold forgets the contexts whose ctx has ended.
func (h *Hold) Context(ctx context.Context) context.Context {
	carry := func(ctx context.Context) context.Context { return context.WithValue(ctx, h.own.mutex.key, h) }
	return h.work.under(ctx, h.own.grant.Context(), h.Err, carry)
}
