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
	mutex  *Mutex // that acquired it
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

// A Hold is one successful acquisition of a lock. Release it exactly once. Its methods may be called concurrently.
//
// To keep out late writes of former holders, pass [Hold.Token] to the resource, or use a guarded write: see [Guard].
type Hold struct {
	own      *ownership
	shared   bool // it reads
	traced   bool // see [WithLeakDetection]
	released atomic.Bool
	bundle   atomic.Pointer[Bundle] // that it belongs to; nil if none
	work     contexts
}

// Lost returns a channel that is closed when the lock is lost, before the store can grant it to another process. If an operator deletes
// the queue entry, the channel is closed a little later than that. Release does not close it, unless it finds the lock lost. After
// Release do not use the channel: other goroutines of this process may hold the lock.
func (h *Hold) Lost() <-chan struct{} { return h.own.grant.Context().Done() }

// Err returns nil while the lock is held, an error that wraps [ErrLost] once it is lost, and [ErrReleased] once this hold is released. It
// checks the clock at each call and sends no request. It is therefore accurate at once after a pause of the process or a suspend of the
// machine.
func (h *Hold) Err() error {
	err := h.own.grant.Err()
	if h.released.Load() { // asked last: the end of a node that was given up is no loss
		return ErrReleased
	}
	return err
}

// ValidUntil returns the end of the lease by this process's clock: until then the lock is held, unless an operator deletes its queue
// entry. Renewals extend it, so call ValidUntil again instead of keeping the result. It returns the zero time once the lock is lost or
// this hold is released, and always without a lease (package dropin).
//
// Caution: package time does not count the sleep of the machine. After a suspend, a result that you kept can seem to lie in the future.
func (h *Hold) ValidUntil() time.Time {
	if h.released.Load() {
		return time.Time{}
	}
	return h.own.grant.ValidUntil()
}

// Token returns the fencing token: positive, the same for all holds of one ownership, never lower than that of an earlier owner, and
// higher than that of every earlier owner in another process. A resource that refuses tokens lower than the highest it has seen is safe
// from former holders that do not know yet that they lost the lock.
//
// Use the token wherever a late write does harm: a process can be paused after it has checked the lock, and its write then arrives when
// another process has the lock. Guarded writes need no token; see [Guard].
//
// Caution: a store that lost its data issues low tokens again, and the resource then refuses all writes. First end every process that may
// have held the lock; then reset the highest token in the resource.
func (h *Hold) Token() int64 { return h.own.grant.Token() }

// Shared reports whether this is a read hold of an [RWMutex].
func (h *Hold) Shared() bool { return h.shared }

// Contended returns a channel that is closed when another process waits for the lock because of this process. It is for a program that
// can stop early. The channel stays closed, even if the other process gives up. The first call costs the store a read and a watch.
//
// Calling Contended also ends local hand-off: once another process waits, the next release gives the lock to that process, whatever the
// budget of [WithHandOff], and no more readers join. This applies to all goroutines of the process until the lock leaves it.
//
// Caution: if every process releases as soon as the channel is closed, each does only one step of work per acquisition. Work for a
// minimum time before you check the channel.
//
// Readers do not contend with readers. After a downgrade, see [RWMutex], the channel is another one.
func (h *Hold) Contended() <-chan struct{} { return h.own.cohort.contendedOf(h.own.grant) }

// RevokeRequested returns a channel that is closed when [Mutex.Revoke], "tierlock revoke" or Curator's Revoker has asked for the lock.
// The lock is not taken away: the program decides whether to release it. A process that does not call RevokeRequested ignores requests.
// On ZooKeeper the first call costs a read and a watch.
//
// Calling RevokeRequested also ends local hand-off: once the request has come, the next release gives the lock to the next process, and
// no more readers join.
func (h *Hold) RevokeRequested() <-chan struct{} { return h.own.cohort.revokedOf(h.own.grant) }

// Path returns the path of the lock.
func (h *Hold) Path() string { return h.own.cohort.key.path }

// Release ends this hold. When the last hold of an ownership is released, the lock goes to the next goroutine or process. Release takes
// one round trip, or none if the lock stays in the process. It takes no context. If the store does not answer, it returns after
// [WithReleaseTimeout], a third of the lease TTL by default, and the queue entry is deleted in the background or ends with the session.
//
// It returns nil if the lock was held to the end, an error that wraps [ErrLost] if it was lost, and [ErrReleased], without any effect, if
// this hold was released before. In all cases the hold is over.
//
// Without a lease (package dropin) only the server knows whether the lock was still held. If the server does not answer, the error says
// so. A hand-off within the process waits up to a second for that answer. While the outcome of a guarded write is unknown, the lock is
// not handed off within the process.
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

// ReleaseAt releases the hold at t, in the background, and returns nil at once. Use it to hold a lock for a minimum time. Until t the
// hold and its contexts stay valid; Release ends them earlier. The result of the release at t is dropped. If t has passed, ReleaseAt is
// Release.
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

// HoldFrom returns the hold of m that ctx carries, or nil if ctx carries none or that hold is released. The contexts of [Mutex.Do] and
// [Hold.Context] carry holds. It is not another hold: do not release it.
func HoldFrom(ctx context.Context, m *Mutex) *Hold {
	if hold, _ := ctx.Value(m.key).(*Hold); hold != nil && !hold.released.Load() {
		return hold
	}
	return nil
}

// WithoutHold returns ctx without the holds that it carries. A goroutine that must compete for the lock, although it is started under the
// lock, acquires with that context and waits like any other goroutine. Values and cancellation stay: the context ends when ctx does, and
// with it at the release of a hold.
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

// Context returns a context for work under the lock, derived from ctx. Acquiring the same lock with it does not block; see
// [Mutex.Acquire]. It is cancelled when the lock is lost, with a cause that wraps [ErrLost], and when the hold is released, with the
// cause [ErrReleased]. If that has happened already, the context is done when Context returns.
//
// Caution: goroutines that share this context, such as those of an errgroup, share the hold. They are not excluded from each other. Give a
// goroutine that has to compete for the lock [WithoutHold] of the context.
//
// Derive it from a context that lives as long as the work, not from one whose deadline is meant for the wait. The same ctx gives the same
// context.
func (h *Hold) Context(ctx context.Context) context.Context {
	carry := func(ctx context.Context) context.Context { return context.WithValue(ctx, h.own.mutex.key, h) }
	return h.work.under(ctx, h.own.grant.Context(), h.Err, carry)
}
