package zklock

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tierlock/tierlock/internal/contention"
	"github.com/tierlock/tierlock/internal/notice"
	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/mutexbool"
	"github.com/tierlock/tierlock/zklock/internal/link"
)

// A Node is an acquired lock: a znode at the head of its queue. It must be given up
// exactly once, with [Node.Release]. Methods may be called concurrently.
type Node struct {
	lock   *Lock
	znodes znodes         // that the node was made of; see mine
	wake   mutexbool.Bool // look again: the queue, the connection or the session changed

	// Set by the attempt that made the node, before anybody else sees it; a node is
	// bound to another session only while it queues.
	session *link.Session
	token   int64
	bound   atomic.Bool  // both are final
	beside  int          // other contenders in the last list of the queue before the grant
	heard   atomic.Int64 // when the server was last asked that said that the node is there, on the client's clock

	life    context.Context // ends when the lock is lost, with the reason as its cause
	endHold context.CancelCauseFunc
	loss    notice.Loss
	reaped  atomic.Bool // left to the reaper

	contested *contention.Signal // whether another contender waits behind the node
	sharing   *sharing           // by which a writer becomes a reader; nil for others
	revoked   revocation

	checking *time.Timer   // to have the end watched, nil if it is; set at the grant
	unattend func()        // ends the attention to the connection; nil before the grant
	writing  atomic.Int32  // Multis without an answer
	spent    atomic.Bool   // given up
	fate     error         // what Release says about the node's end; valid when released is closed
	released chan struct{} // closed when the node is gone or left to the reaper
}

func newNode(l *Lock, s *link.Session, paths []string) *Node {
	n := &Node{
		lock: l, session: s,
		released: make(chan struct{}),
	}
	n.znodes = newZnodes(paths, n.changed)
	n.contested = n.newContested(&n.wake)
	if l.mode == second.Writing {
		n.sharing = newSharing()
	}
	// Not derived from the context of Acquire, which bounds only the wait.
	n.life, n.endHold = context.WithCancelCause(context.Background())
	return n
}

// Path returns the path of the lock node; of two, the one that is first in the queue.
func (n *Node) Path() string { return strings.TrimPrefix(n.path(), n.lock.client.chroot) }

// path is that on the server.
func (n *Node) path() string { return n.mine()[0].path }

// Token returns the fencing token: the transaction id that created the node (czxid). It
// is positive and grows with every later owner of any lock of the ensemble, even if the
// parent was deleted in between. A resource that remembers the highest token it has
// seen and refuses lower ones is safe from owners that do not know yet that they lost
// the lock.
//
// Those of a reader/writer lock grow from a writer to whoever comes behind, and from readers to the
// writer behind them. Readers that have the lock together have tokens in any order, and a writer that
// is shared keeps its own. So the resource refuses a write with a token below the highest that it has
// seen at all, and a read with one below that of the latest write.
//
// Tokens grow for as long as the ensemble keeps its data. If the data is lost, or
// restored from a backup, they start lower again (5 after 406), and the resource refuses
// every new owner. An operator then ends every process that may have held the lock
// before, and only then resets the highest token that the resource remembers: a former
// owner, should one be left, has a higher token than the new ones.
func (n *Node) Token() int64 { return n.token }

// Lost returns a channel that is closed when the lock is no longer certain to be ours:
// no later than the lease ends, and so before the server can give the lock to anybody
// else. If somebody else deletes the node, it is closed when the server of this client has
// said so; if the lock was granted without waiting, maybe only a sixth of the session timeout
// after the grant.
func (n *Node) Lost() <-chan struct{} { return n.life.Done() }

// Context returns a context that ends when Lost is closed, with an error wrapping
// [ErrLost] as its cause. Giving the lock up does not end it.
func (n *Node) Context() context.Context { return n.life }

// Err returns nil while the lock is held, an error wrapping [ErrLost] once it is lost,
// and [ErrReleased] once it was given up. It reads the clock itself, so it is right
// also in a process that has just been continued after a stop. What it cannot tell is
// what happens after it returned: use the token where that matters.
func (n *Node) Err() error { return n.errAt(n.lock.client.link.Now()) }

func (n *Node) errAt(now time.Duration) error {
	loss := n.lossAt(now)
	if n.spent.Load() { // asked last: the end of a node that was given up is no loss
		return ErrReleased
	}
	return loss
}

// ValidUntil returns up to when the lease runs as far as it is renewed now, by this process's
// clock; the zero time once the lock is lost or given up, or without a lease.
func (n *Node) ValidUntil() time.Time {
	now := time.Now() // before the look: who is stopped in between returns too early a time
	left, limited := n.session.Remaining()
	if !limited || n.Err() != nil {
		return time.Time{}
	}
	return now.Add(left)
}

// lossNow returns why the lock is lost, nil if it is not.
func (n *Node) lossNow() error { return n.lossAt(n.lock.client.link.Now()) }

func (n *Node) lossAt(now time.Duration) error {
	if n.life.Err() == nil {
		if n.session.ValidAt(now) {
			return nil
		}
		n.session.Lapse()
	}
	return context.Cause(n.life) // nil if the session has just been renewed
}

// Suspended reports whether the connection is down while the lease still runs. The lock
// is not lost yet; it will be unless the connection returns in time.
func (n *Node) Suspended() bool {
	return n.Err() == nil && n.lock.client.Err() != nil
}

// end ends the hold. The end of a node that was given up is no loss, unless its release says so.
func (n *Node) end(reason error) {
	n.endHold(reason)
	if !n.spent.Load() {
		n.reportLoss(reason)
	}
}

func (n *Node) reportLoss(cause error) {
	l := n.lock
	n.loss.Tell(cause, func() {
		l.client.link.Spawn(func() {
			l.client.options.logger.Warn("zklock: lock lost", "path", l.Path(), "token", n.token, "cause", cause)
		})
	})
}

// lose ends the hold. If the node is still there, others wait behind it: it goes when the
// owner has released it, who may need the margin to come to an end.
func (n *Node) lose(reason error) {
	n.end(reason)
	n.wake.Set()
	n.lock.client.link.Spawn(n.reapAfterMargin)
}

func (n *Node) reapAfterMargin() {
	c := n.lock.client
	margin := time.NewTimer(c.link.Margin(n.session.Negotiated()))
	defer margin.Stop()
	select {
	case <-margin.C:
		n.reap()
	case <-n.released:
	case <-c.link.Context().Done():
	}
}

// loseTo ends the hold because one of the znodes is gone. The other one is worth nothing any
// more. Those of a node that was given up go by our own hand; if not, the answer to that tells.
func (n *Node) loseTo(z *znode) {
	z.watch.Gone.Store(true) // before the look: whoever gives the node up meanwhile finds it
	if n.spent.Load() {
		return
	}
	n.end(errDeleted(z.path))
	if len(n.znodes) > 1 {
		n.lock.client.link.Spawn(n.reapRest)
	}
}

// reapRest waits for word of the other znode before it lets it be deleted: most often both go
// together, as when the session ends, and reap tells why not to ask for more.
func (n *Node) reapRest() {
	if retry.Pause(n.lock.client.link.Context(), 10*time.Millisecond) == nil {
		n.reap()
	}
}

// reap leaves the znodes to the reaper, except those that are gone, and those that they may have been
// replaced by. A request less is not only
// cheaper: one that meets a closing connection can stop the library for ever (conn.go:527).
// When the client is closed they go with the session.
func (n *Node) reap() {
	c := n.lock.client
	if n.reaped.Swap(true) || c.link.Context().Err() != nil {
		return
	}
	maybe := n.maybe() // asked first: what it is by then is asked for next
	for _, z := range slices.Concat(maybe, n.mine()) {
		if !z.gone() {
			c.reaper.Add(remains{parent: parentOf(z.path), paths: []string{z.path}})
		}
	}
}
