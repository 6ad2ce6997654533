package zklock

import (
	"context"
	"slices"
	"sync/atomic"

	weighted "golang.org/x/sync/semaphore"

	"github.com/tierlock/tierlock/internal/contention"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/mutexbool"
)

// A sharing is of a writer's node, which can become a reader's: then other znodes take the place of
// its own. All that is sent about znodes goes by their names, so it waits while it is not known which
// there are.
type sharing struct {
	names *weighted.Weighted // one to send what names the znodes, all to replace them; never waited for by events or a heartbeat

	next   atomic.Pointer[reader] // what was asked for without an answer so far, or ever
	reader atomic.Pointer[reader] // what the node is since
	missed atomic.Bool            // something happened to a znode that may be replaced
}

const allNames = 1 << 30

func newSharing() *sharing { return &sharing{names: weighted.NewWeighted(allNames)} }

func (s *sharing) unpin() { s.names.Release(1) }

// A reader is what a node is once it is shared.
type reader struct {
	znodes    znodes
	contested *contention.Signal
	wake      mutexbool.Bool // look at the queue again
}

// shared reports whether others that read may have the lock at the same time.
func (n *Node) shared() bool { return n.lock.mode == second.Reading || n.reader() != nil }

// reader returns what the node is since it is shared, nil before.
func (n *Node) reader() *reader {
	if n.sharing == nil {
		return nil
	}
	return n.sharing.reader.Load()
}

// unsure returns what the node may be, for all that is known, nil if nothing but what it was.
func (n *Node) unsure() *reader {
	if n.sharing == nil {
		return nil
	}
	return n.sharing.next.Load()
}

// maybe returns what the node may be on the server, beside what it is known to be.
func (n *Node) maybe() znodes {
	if r := n.unsure(); r != nil {
		return r.znodes
	}
	return nil
}

// mine returns what the node is on the server. Whoever has to know for certain asks [Node.unsure]
// before.
func (n *Node) mine() znodes {
	if r := n.reader(); r != nil {
		return r.znodes
	}
	return n.znodes
}

// pin returns what the node is on the server, and keeps it so until unpin is called. It waits for a
// change that is under way, and returns none if its outcome was never learned.
func (n *Node) pin() (zs znodes, unpin func()) {
	if n.sharing == nil {
		return n.znodes, func() {}
	}
	n.sharing.names.Acquire(context.Background(), 1)
	return n.pinned(), n.sharing.unpin
}

// tryPin is pin without waiting: it returns none while a change is under way, too.
func (n *Node) tryPin() (zs znodes, unpin func()) {
	switch {
	case n.sharing == nil:
		return n.znodes, func() {}
	case !n.sharing.names.TryAcquire(1):
		return nil, func() {}
	}
	return n.pinned(), n.sharing.unpin
}

func (n *Node) pinned() znodes {
	if n.unsure() != nil {
		return nil
	}
	return n.mine()
}

// replaced reports whether what happened to z is no news, or none for now: z is no znode of the node any
// more, or maybe not.
func (n *Node) replaced(z *znode) bool {
	if n.sharing == nil {
		return false
	}
	n.sharing.missed.Store(true) // before the look: see resume
	return n.unsure() != nil || !slices.Contains(n.mine(), z)
}
