package tier

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/go-zookeeper/zk"
	"github.com/tierlock/tierlock/zklock"
)

// An ownership is one turn behind the gate. All holds of one call tree share it; the
// lock goes when the last of them is released.
type ownership struct {
	cohort *cohort
	node   *zklock.Node
	holds  atomic.Int64 // not released yet; 0 is final
	first  Hold         // kept here to save an allocation
}

// begin makes o the ownership of node.
func (o *ownership) begin(c *cohort, node *zklock.Node) *ownership {
	o.cohort, o.node = c, node
	o.holds.Store(1)
	o.first.own = o
	return o
}

// reenter adds a hold, unless the last one has been released.
func (o *ownership) reenter() *Hold {
	for {
		n := o.holds.Load()
		if n == 0 {
			return nil
		}
		if o.holds.CompareAndSwap(n, n+1) {
			return &Hold{own: o}
		}
	}
}

// A Hold is one acquisition of a lock. It must be released exactly once. Its methods
// may be called concurrently.
type Hold struct {
	own      *ownership
	released atomic.Bool
	derives  atomic.Bool // Context has been called

	mu      sync.Mutex          // guards the field below
	derived map[any]*derivation // the contexts made by Context that have not ended, by their parents
}

// Lost returns a channel that is closed when the lock is no longer certain to be ours,
// before the server can give it to anybody else. That somebody else deletes the node is
// heard of a little later; see [zklock.Node.Lost].
func (h *Hold) Lost() <-chan struct{} { return h.own.node.Lost() }

// Err returns nil while the lock is held, an error wrapping [ErrLost] once it is lost,
// and [ErrReleased] once this hold was released. It reads the clock itself, so it is
// right at the first instruction of a process that was stopped and continued.
func (h *Hold) Err() error {
	err := h.own.node.Err()
	if h.released.Load() { // asked last: the end of a node that was given up is no loss
		return ErrReleased
	}
	return err
}

// Suspended reports whether the connection to ZooKeeper is down while the lease still
// runs: the lock is not lost, but will be unless the connection returns in time.
func (h *Hold) Suspended() bool { return h.Err() == nil && h.own.node.Suspended() }

// Token returns the fencing token: positive, the same for all holds of one ownership,
// never lower than that of any owner before, and higher than that of any owner in
// another process before. A resource that refuses tokens lower than the highest it has
// seen is safe from owners that do not know yet that they lost the lock.
//
// An ensemble that lost its data starts with low tokens again, and such a resource then
// refuses everybody; [zklock.Node.Token] says what an operator does.
func (h *Hold) Token() int64 { return h.own.node.Token() }

// Multi runs ZooKeeper operations, as in [zk.Conn.Multi], in one transaction that takes
// effect only while the lock is ours: an exact fence for data that lives in the same
// ensemble. The errors are those of [zklock.Node.Multi]. A call that has not been
// answered when the hold is released keeps the lock from being handed on.
func (h *Hold) Multi(ctx context.Context, ops ...any) ([]zk.MultiResponse, error) {
	return h.own.node.MultiIf(ctx, h.Err, ops...)
}

// Release ends this hold; when it is the last one of the ownership, the lock goes:
// first the node, then the gate. It needs no context and waits for an unreachable
// server for a third of the session timeout at most; the node is then deleted in the
// background or goes with its session.
//
// It returns nil if the lock was ours to the end, an error wrapping [ErrLost] if it was
// lost before, and [ErrReleased], without any effect, if this hold was released before.
// Without a lease, over [zklock.Attach], nil is the server's word; if that cannot be had,
// the error says so, as that of [zklock.Node.Release] does. Where the lock could stay in the
// process, that word is waited for first, for a second at most.
func (h *Hold) Release() error {
	if h.released.Swap(true) {
		return ErrReleased
	}
	if h.derives.Load() { // whoever says so later finds that the hold is released
		h.endDerived()
	}
	if h.own.holds.Add(-1) == 0 {
		c := h.own.cohort
		defer c.registry.part(c)
		return c.release(h.own)
	}
	if life := h.own.node.Context(); life.Err() != nil { // reads no clock
		return context.Cause(life)
	}
	return nil
}
