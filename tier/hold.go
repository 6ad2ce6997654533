package tier

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// An ownership is one turn behind the gate. All holds of one call tree share it; the
// lock goes when the last of them is released.
type ownership struct {
	cohort *cohort
	grant  second.Grant
	source source
	reads  atomic.Bool  // from the beginning, or by now
	holds  atomic.Int64 // not released yet: those that read, and writeHold for each of the others; 0 is final
	first  Hold         // kept here to save an allocation

	watched *watched // for the observer; nil if there is none
}

const writeHold = 1 << 32

// weight is what a hold counts in holds.
func weight(reads bool) int64 {
	if reads {
		return 1
	}
	return writeHold
}

// begin makes o an ownership of grant, to read or not.
func (o *ownership) begin(c *cohort, grant second.Grant, reads bool) *ownership {
	o.cohort, o.grant = c, grant
	o.holds.Store(weight(reads))
	o.reads.Store(reads)
	o.first.enter(o, reads)
	return o
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
			return nil, ErrUpgrade
		}
		if o.holds.CompareAndSwap(n, n+weight(reads)) {
			hold := new(Hold)
			hold.enter(o, reads)
			return hold, nil
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
type Hold struct {
	own   *ownership
	flags atomic.Uint32 // of those below

	mu      sync.Mutex          // guards the field below
	derived map[any]*derivation // the contexts made by Context that have not ended, by their parents
}

const (
	shared   uint32 = 1 << iota // it reads
	released                    // for good
	derives                     // Context has been called
)

func (h *Hold) enter(own *ownership, reads bool) {
	h.own = own
	if reads {
		h.flags.Store(shared)
	}
}

func (h *Hold) is(flag uint32) bool { return h.flags.Load()&flag != 0 }

// Lost returns a channel that is closed when the lock is no longer certain to be ours,
// before the store can give it to anybody else. If an operator deletes the contender, the
// channel is closed a little later than that. A release does not close it, unless it finds the lock lost;
// after the release it says nothing, as goroutines of this process may have the lock in turn.
func (h *Hold) Lost() <-chan struct{} { return h.own.grant.Context().Done() }

// Err returns nil while the lock is held, an error wrapping [ErrLost] once it is lost,
// and [ErrReleased] once this hold was released. It reads the clock itself, so it is
// right from the first instruction of a process that was stopped and continued.
func (h *Hold) Err() error {
	err := h.own.grant.Err()
	if h.is(released) { // asked last: the end of a node that was given up is no loss
		return ErrReleased
	}
	return err
}

// Suspended reports whether the store cannot be reached while the lease still runs: the lock
// is not lost, but will be unless the connection returns in time.
func (h *Hold) Suspended() bool { return h.Err() == nil && h.own.cohort.registry.second.Err() != nil }

// ValidUntil returns up to when the lock is certainly ours, unless an operator deletes its
// contender: the end of the lease as far as it is renewed now, by this process's clock. While the
// store answers it moves on, so ask again rather than keep it. It is the zero time once the lock is
// lost or this hold is released, and always if there is no lease (package dropin).
func (h *Hold) ValidUntil() time.Time {
	if h.is(released) {
		return time.Time{}
	}
	return h.own.grant.ValidUntil()
}

// Token returns the fencing token: positive, the same for all holds of one ownership,
// never lower than that of any owner before, and higher than that of any owner in
// another process before. A resource that refuses tokens lower than the highest it has
// seen is safe from owners that do not know yet that they lost the lock.
//
// A store that lost its data starts with low tokens again, and such a resource then refuses
// everybody. An operator then ends every process that may have held the lock before, and only
// then resets the highest token that the resource remembers.
func (h *Hold) Token() int64 { return h.own.grant.Token() }

// Shared reports whether the hold is one to read, of an [RWMutex].
func (h *Hold) Shared() bool { return h.is(shared) }

// Contested returns a channel that is closed once another process is known to wait because of this
// process: for one that can stop early. Goroutines of this process do not count. The first call
// begins to look, which costs the store a read and a watch; what is found may be a process that has
// given up since, and the channel does not open again.
//
// Once it is closed, the lock goes to nobody in this process: a release gives it up whatever the
// hand-off budget is ([WithHandOff]), and nobody joins those who read. That is so for all goroutines
// that have the lock in turn, from the first call until the lock leaves the process. Where nobody
// calls Contested the budget alone decides.
//
// Two processes that both give way at once take turns of one step. Work for a minimum time before
// you look.
//
// A process that reads is not in the way of others that read. When the lock of a writer has become
// one to read, as [RWMutex] says, the channel is another one.
func (h *Hold) Contested() <-chan struct{} { return h.own.cohort.contestedOf(h.own.grant) }

// Revoked returns a channel that is closed once somebody has asked for the lock with
// [Mutex.Revoke], or in ZooKeeper with Curator's Revoker. It is for the program to release the lock,
// which then goes to nobody in this process; nor does anybody join those who read. Whoever does not
// call Revoked is not told. In ZooKeeper the first call costs a read and a watch.
func (h *Hold) Revoked() <-chan struct{} { return h.own.cohort.revokedOf(h.own.grant) }

// Path returns the path of the lock.
func (h *Hold) Path() string { return h.own.cohort.key.path }

// Grant returns the grant of the second tier, for functions that write under the lock, such as
// tierlock.Multi. Programs do not need it; the caller must not release it.
func (h *Hold) Grant() second.Grant { return h.own.grant }

// Release ends this hold. With the last hold of the ownership the lock goes: first the
// contender, then the gate. Release takes no context; it waits for an unreachable store for a
// third of the lease at most, after which the contender is removed in the background or goes
// with its session. A guarded write that has not been answered keeps the lock from being handed
// on within the process.
//
// It returns nil if the lock was ours to the end, an error wrapping [ErrLost] if it was
// lost before, and [ErrReleased], without any effect, if this hold was released before. In any
// case the hold is over. Without a lease (package dropin) only the server knows whether the
// lock was ours: if it does not answer, the error says so; and before the lock is handed on
// within the process, Release waits for the answer, for a second at most.
func (h *Hold) Release() error {
	if h.flags.Or(released)&released != 0 {
		return ErrReleased
	}
	if h.is(derives) { // whoever says so later finds that the hold is released
		h.endDerived()
	}
	c := h.own.cohort
	left := h.own.holds.Add(-weight(h.Shared()))
	if left == 0 {
		defer c.registry.part(c)
		if c.registry.options.observer != nil {
			return h.own.releaseWatched()
		}
		return c.release(h.own)
	}
	if left < writeHold && !h.Shared() {
		c.downgrade(h.own)
	}
	if life := h.own.grant.Context(); life.Err() != nil { // reads no clock
		return context.Cause(life)
	}
	return nil
}
