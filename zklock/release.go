package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"
)

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
	loss := n.leave()
	n.stepAside()
	n.startDelete(loss)
	err := n.awaitRelease()
	if loss != nil {
		return fmt.Errorf("zklock: release %s: %w", n.lock.path, loss)
	}
	return err
}

// leave comes before a node that is given up is deleted, and returns the loss, which is none from then on
// unless the answer to the delete says so.
func (n *Node) leave() (loss error) {
	n.lossNow() // reads the clock
	n.session.Leave(member{n})
	return context.Cause(n.life)
}

// awaitRelease waits for the end of a node that is being given up, for as long as Release
// would, and returns what it would return.
func (n *Node) awaitRelease() error {
	bound := time.NewTimer(n.session.Negotiated() / 3)
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
	if errors.Is(fate, ErrLost) {
		n.endHold(fate)
	}
	if fate != nil {
		return fmt.Errorf("zklock: release %s: %w", n.lock.path, fate)
	}
	return nil
}

// startDelete has the node deleted without waiting for the answer. A loss is what became of it
// before, nil if it was held to the end.
func (n *Node) startDelete(loss error) {
	c := n.lock.client
	switch err := c.Err(); {
	case n.unsure() == nil && n.mine().gone(): // by another hand, and nobody has said so yet
		n.finish(cmp.Or(loss, errDeleted(n.path())))
	case errors.Is(err, ErrClosed):
		n.finish(cmp.Or(loss, fmt.Errorf("%w: %w", ErrLost, err)))
	case err != nil && (n.leased() || loss != nil): // else its answer is worth waiting for
		n.finish(loss)
	case !c.link.Spawn(func() { n.delete(loss) }):
		n.finish(cmp.Or(loss, n.doubt(ErrClosed)))
	}
}

// delete asks the server to delete the node. Its name was given by the server and never
// returns, so the delete can only hit this node.
func (n *Node) delete(loss error) {
	c := n.lock.client
	if c.link.Over() { // what is sent now could stop the library for ever (conn.go:527)
		n.finish(cmp.Or(loss, n.doubt(ErrClosed)))
		return
	}
	zs, unpin := n.pin()
	defer unpin()
	if zs == nil { // nobody knows their names: both go to the reaper
		n.finish(cmp.Or(loss, n.doubt(nil)))
		return
	}
	_, err := c.link.Transact(zs.deletes()...)
	answer := classify(err)
	zs.deleted(answer)
	switch answer {
	case done:
		n.finish(loss)
	case missing:
		n.finish(errDeleted(n.path()))
	case permanent:
		n.finish(cmp.Or(loss, fmt.Errorf("delete %s, which stays in the queue until the session ends, also in the way of this process: %w",
			n.path(), lacking("DELETE", n.lock.path, err))))
	default:
		n.finish(cmp.Or(loss, n.doubt(err)))
	}
}

// discard deletes a node that is not wanted.
func (n *Node) discard() {
	n.spent.Store(true)
	n.session.Leave(member{n})
	if n.life.Err() != nil || n.lock.client.Err() != nil {
		n.finish(nil)
		return
	}
	n.delete(nil)
}

// finish says that nobody has to wait for the node any more. What is not known to be gone is
// left to the reaper.
func (n *Node) finish(fate error) {
	n.reportLoss(fate)
	n.reap()
	if n.checking != nil {
		n.checking.Stop()
	}
	if n.unattend != nil {
		n.unattend()
	}
	for _, z := range n.mine() {
		n.lock.client.link.Events.Ignore(z.path, &z.watch)
	}
	n.fate = fate
	close(n.released)
}

// doubt is what Release says when the server has not answered, because of err: nothing if
// the lease vouches for the lock, and else that nobody knows.
func (n *Node) doubt(err error) error {
	if n.leased() {
		return nil
	}
	err = cmp.Or(err, n.lock.client.Err(), zk.ErrConnectionClosed)
	return fmt.Errorf("not known whether the lock was ours to the end: %w", err)
}
