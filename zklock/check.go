package zklock

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/tierlock/tierlock/zklock/internal/link"
)

// watchLater has the end of a held node watched that did not need it so far. A short hold
// never does.
func (n *Node) watchLater() {
	if n.znodes.unwatched() != nil {
		n.checking = n.checkLater()
	}
}

// checkLater leaves time for a short hold to end.
func (n *Node) checkLater() *time.Timer {
	return time.AfterFunc(n.session.Negotiated()/6, func() { n.lock.client.link.Spawn(n.check) })
}

// check looks whether a node is still there and still ours, and has its end watched.
func (n *Node) check() {
	zs, unpin := n.pin()
	defer unpin()
	if zs != nil {
		n.look(zs)
	}
}

// look is check for one who knows the znodes.
func (n *Node) look(zs znodes) {
	c := n.lock.client
	again := false
	for i, seen := range c.link.Read(n.readings(zs)...) {
		z := zs[i]
		switch {
		case errors.Is(seen.Err, zk.ErrNoNode):
			n.loseTo(z)
		case errors.Is(seen.Err, zk.ErrNoAuth): // nor could the lease be renewed
			n.session.Lose(member{n}, fmt.Errorf("%w: read %s: %w", ErrLost, z.path, lacking("READ", z.path, seen.Err)))
		case seen.Err != nil: // nothing learned; the lease decides
			again = true
		case n.bound.Load() && seen.Stat.EphemeralOwner != n.session.ID: // before that, the attempt looks itself
			n.session.Lose(member{n}, fmt.Errorf("%w: node %s belongs to session 0x%x", ErrLost, z.path, uint64(seen.Stat.EphemeralOwner)))
		default:
			z.version.Store(seen.Stat.Version)
			if asked(seen.Data) {
				n.revoked.told.Set()
			}
		}
	}
	if again && c.Err() == nil && !n.spent.Load() { // else there is another check at the reconnect
		n.checkLater()
	}
}

// readings are the requests that read the znodes, and have their end watched.
func (n *Node) readings(zs znodes) []link.Request {
	var requests []link.Request
	for _, z := range zs {
		requests = append(requests, n.lock.client.link.Reading(z.path, &z.watch))
	}
	return requests
}

// prove has the server agree, by a write, that a node is there. While that is being replaced the write
// is about the path: the lease does not wait.
func (n *Node) prove() {
	l := n.lock.client.link
	zs, unpin := n.tryPin()
	defer unpin()
	if zs == nil {
		l.Transact(&zk.CheckVersionRequest{Path: n.lock.path, Version: -1})
		return
	}
	if _, err := l.Transact(zs.checks()...); errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNoAuth) {
		n.look(zs)
	}
}

// changed is called when something happened to one of the znodes.
func (n *Node) changed(z *znode) {
	if n.replaced(z) {
		return
	}
	if z.gone() {
		n.loseTo(z)
	} else if n.life.Err() == nil && !n.spent.Load() {
		n.lock.client.link.Spawn(n.check) // somebody wrote to it: the watch is used up
	}
	n.wake.Set()
}
