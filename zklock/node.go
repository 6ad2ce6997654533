package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tierlock/tierlock/internal/contention"
	"github.com/tierlock/tierlock/mutexbool"
)

// A Node is an acquired lock: a znode at the head of its queue. It must be given up
// exactly once, with [Node.Release]. Methods may be called concurrently.
type Node struct {
	lock   *Lock
	znodes []znode        // one, or a pair of which neither is worth anything alone
	wake   mutexbool.Bool // look again: the queue, the connection or the session changed

	// Set by the attempt that made the node, before anybody else sees it; a node is
	// bound to another session only while it queues.
	session *session
	token   int64
	bound   atomic.Bool  // both are final
	heard   atomic.Int64 // when the server was last asked that said that the node is there, on the client's clock

	life   context.Context // ends when the lock is lost, with the reason as its cause
	end    context.CancelCauseFunc
	buried atomic.Bool // left to the reaper

	contested *contention.Signal // whether another contender waits behind the node

	watching *time.Timer   // to have the deletion watched, nil if it is; set at the grant
	leave    func()        // ends the attention to the connection; nil before the grant
	writing  atomic.Int32  // Multis without an answer
	spent    atomic.Bool   // given up
	fate     error         // what Release says about the node's end; valid when released is closed
	released chan struct{} // closed when the node is gone or left to the reaper
}

func newNode(l *Lock, s *session, paths []string) *Node {
	n := &Node{
		lock: l, session: s, znodes: make([]znode, len(paths)),
		released: make(chan struct{}),
	}
	n.contested = contention.New(func() { l.client.spawn(n.observe) })
	// Not derived from the context of Acquire, which bounds only the wait.
	n.life, n.end = context.WithCancelCause(context.Background())
	for i, path := range paths {
		z := &n.znodes[i]
		z.path, z.watch.notify = path, func() { n.changed(z) }
	}
	return n
}

// lose ends the hold. If the node is still there, others wait behind it: it goes when the
// owner has released it, who may need the margin to come to an end.
func (n *Node) lose(reason error) {
	n.end(reason)
	n.wake.Set()
	n.lock.client.spawn(n.buryAfterMargin)
}

func (n *Node) buryAfterMargin() {
	c := n.lock.client
	margin := time.NewTimer(c.margin(n.session.negotiated()))
	defer margin.Stop()
	select {
	case <-margin.C:
		n.bury()
	case <-n.released:
	case <-c.ctx.Done():
	}
}

// bury leaves the znodes to the reaper, except those that are known to be gone. A request
// less is not only cheaper: one that meets a closing connection can stop the library for
// ever (conn.go:527).
func (n *Node) bury() {
	if n.buried.Swap(true) {
		return
	}
	for i := range n.znodes {
		if z := &n.znodes[i]; !z.watch.deleted.Load() {
			n.lock.client.reaper.Add(remains{path: z.path})
		}
	}
}

// Path returns the path of the lock node; of two, the one that is first in the queue.
func (n *Node) Path() string { return strings.TrimPrefix(n.path(), n.lock.client.chroot) }

// path is that on the server.
func (n *Node) path() string { return n.znodes[0].path }

// Token returns the fencing token: the transaction id that created the node (czxid). It
// is positive and grows with every later owner of any lock of the ensemble, even if the
// parent was deleted in between. A resource that remembers the highest token it has
// seen and refuses lower ones is safe from owners that do not know yet that they lost
// the lock.
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
func (n *Node) Err() error {
	loss := n.lossNow()
	if n.spent.Load() { // asked last: the end of a node that was given up is no loss
		return ErrReleased
	}
	return loss
}

// lossNow returns why the lock is lost, nil if it is not.
func (n *Node) lossNow() error {
	if n.life.Err() == nil {
		if n.session.Valid() {
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

// Release gives the lock up and deletes its node. It needs no context and does not wait
// for an unreachable server: after a third of the session timeout at the latest it
// returns, and the node is deleted in the background or goes with its session.
//
// It returns nil when the lock was ours to the end, an error wrapping [ErrLost] when it
// was lost before, [ErrReleased] when it was given up before (nothing is sent), and
// [zk.ErrNoAuth] when this client may not delete nodes below the lock path: the node
// then stays until the session ends, and even this process queues behind it. In any case
// the lock is not held any more.
//
// The lease tells whether the lock was ours. Where there is none, over a connection made
// elsewhere ([Attach]), only the server can: if it has not answered in time, or its answer
// is lost, the error says that it is not known, and wraps that of the connection, such as
// [zk.ErrNoServer] or [zk.ErrConnectionClosed], or [ErrClosed] if that was closed.
func (n *Node) Release() error {
	if n.spent.Swap(true) {
		return ErrReleased
	}
	loss := n.lossNow()
	n.session.Leave(n)
	n.stepAside()
	n.delete(loss)
	err := n.awaitRelease()
	if loss != nil {
		return fmt.Errorf("zklock: release %s: %w", n.lock.path, loss)
	}
	return err
}

// awaitRelease waits for the end of a node that is being given up, for as long as Release
// would, and returns what it would return.
func (n *Node) awaitRelease() error {
	bound := time.NewTimer(n.session.negotiated() / 3)
	defer bound.Stop()
	select {
	case <-n.released:
	case <-bound.C:
	case <-n.lock.client.Done():
	}
	var fate error
	select {
	case <-n.released:
		fate = n.fate
	default:
		fate = n.doubt(nil)
	}
	if fate != nil {
		return fmt.Errorf("zklock: release %s: %w", n.lock.path, fate)
	}
	return nil
}

// delete sends the node's delete, without waiting for the answer. A loss is what became
// of the node before, nil if it was held to the end.
func (n *Node) delete(loss error) {
	c := n.lock.client
	switch err := c.Err(); {
	case n.gone(): // by another hand, and nobody has said so yet
		n.settle(cmp.Or(loss, deleted(n.path())))
		return
	case errors.Is(err, ErrClosed):
		n.settle(cmp.Or(loss, fmt.Errorf("%w: %w", ErrLost, err)))
		return
	case err != nil && (n.leased() || loss != nil): // else its answer is worth waiting for
		n.leaveToReaper(loss)
		return
	}
	if !c.spawn(func() { n.deleteNow(loss) }) {
		n.settle(cmp.Or(loss, n.doubt(ErrClosed))) // the node goes with the session
	}
}

// deleteNow deletes the node, or leaves it to the reaper. Its name was given by the
// server and never returns, so the delete can only hit this node.
func (n *Node) deleteNow(loss error) {
	c := n.lock.client
	if c.link.over() { // what is sent now could stop the library for ever (conn.go:527)
		n.settle(cmp.Or(loss, n.doubt(ErrClosed)))
		return
	}
	_, err := c.transact(n.deletes()...)
	switch classify(err) {
	case done:
		n.settle(loss)
	case missing:
		n.settleMissing()
	case permanent:
		n.leaveToReaper(cmp.Or(loss, fmt.Errorf("delete %s, which stays in the queue until the session ends, also in the way of this process: %w",
			n.path(), lacking("DELETE", n.lock.path, err))))
	default:
		n.leaveToReaper(cmp.Or(loss, n.doubt(err)))
	}
}

// settleMissing follows the answer that there is no such node. Of two it does not say
// which one, and the other one is still there.
func (n *Node) settleMissing() {
	if len(n.znodes) > 1 {
		n.leaveToReaper(deleted(n.path()))
	} else {
		n.settle(deleted(n.path()))
	}
}

func deleted(path string) error { return fmt.Errorf("%w: node %s was deleted", ErrLost, path) }

// leaveToReaper gives the node up without waiting for its end.
func (n *Node) leaveToReaper(fate error) {
	n.bury()
	n.settle(fate)
}

// settle says that nobody has to wait for the node any more.
func (n *Node) settle(fate error) {
	if n.watching != nil {
		n.watching.Stop()
	}
	if n.leave != nil {
		n.leave()
	}
	for i := range n.znodes {
		n.lock.client.events.ignore(n.znodes[i].path, &n.znodes[i].watch)
	}
	n.fate = fate
	close(n.released)
}

// discard removes a node that is not wanted, or lets the reaper do it.
func (n *Node) discard() {
	n.spent.Store(true)
	n.session.Leave(n)
	if n.life.Err() != nil || n.lock.client.Err() != nil {
		n.leaveToReaper(nil)
		return
	}
	n.deleteNow(nil)
}
