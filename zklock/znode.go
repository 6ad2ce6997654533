package zklock

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/tierlock/tierlock/internal/retry"
)

// A znode is what a node is on the server.
type znode struct {
	path    string
	watch   watcher // of the znode itself
	watched bool    // its end is heard of; used by the attempt only
}

// names returns the names of the znodes below the lock path.
func (n *Node) names() []string {
	names := make([]string, len(n.znodes))
	for i := range n.znodes {
		names[i] = baseOf(n.znodes[i].path)
	}
	return names
}

// deletes are the operations that delete the znodes.
func (n *Node) deletes() []any {
	var ops []any
	for i := range n.znodes {
		ops = append(ops, &zk.DeleteRequest{Path: n.znodes[i].path, Version: -1})
	}
	return ops
}

// checks are the operations that do nothing, and fail unless the znodes are there.
func (n *Node) checks() []any {
	var ops []any
	for i := range n.znodes {
		ops = append(ops, &zk.CheckVersionRequest{Path: n.znodes[i].path, Version: -1}) // any version
	}
	return ops
}

// changed is called when something happened to one of the znodes.
func (n *Node) changed(z *znode) {
	if z.watch.deleted.Load() {
		n.vanish(z)
	} else if n.life.Err() == nil && !n.spent.Load() {
		n.lock.client.spawn(n.check) // somebody wrote to it: the watch is used up
	}
	n.wake.Set()
}

// vanish follows the end of one of the znodes. The other one is worth nothing any more.
func (n *Node) vanish(z *znode) {
	z.watch.deleted.Store(true)
	n.end(deleted(z.path))
	if len(n.znodes) > 1 && !n.spent.Load() {
		n.lock.client.spawn(n.buryRest)
	}
}

// buryRest waits for word of the other znode before it lets it be deleted: most often
// both go together, as when the session ends, and bury tells why not to ask for more.
func (n *Node) buryRest() {
	if retry.Pause(n.lock.client.ctx, 10*time.Millisecond) == nil {
		n.bury()
	}
}

// checkLater leaves time for a short hold to end.
func (n *Node) checkLater() *time.Timer {
	return time.AfterFunc(n.session.negotiated()/6, func() { n.lock.client.spawn(n.check) })
}

// check looks whether a node is still there and still ours, and sees to it that its
// deletion is watched.
func (n *Node) check() {
	c := n.lock.client
	again := false
	for i, seen := range c.look(n.looks()...) {
		z := &n.znodes[i]
		switch {
		case errors.Is(seen.err, zk.ErrNoNode):
			n.vanish(z)
		case errors.Is(seen.err, zk.ErrNoAuth): // nor could the lease be renewed
			n.lose(fmt.Errorf("%w: read %s: %w", ErrLost, z.path, lacking("READ", z.path, seen.err)))
		case seen.err != nil: // nothing learned; the lease decides
			again = true
		case n.bound.Load() && seen.stat.EphemeralOwner != n.session.id: // before that, the attempt looks itself
			n.lose(fmt.Errorf("%w: node %s belongs to session 0x%x", ErrLost, z.path, uint64(seen.stat.EphemeralOwner)))
		}
	}
	if again && c.Err() == nil && !n.spent.Load() { // else there is another look at the reconnect
		n.checkLater()
	}
}

// gone reports whether the znodes are known to be deleted.
func (n *Node) gone() bool {
	for i := range n.znodes {
		if !n.znodes[i].watch.deleted.Load() {
			return false
		}
	}
	return true
}

// looks are the requests that read the znodes, and have their deletion watched.
func (n *Node) looks() []request {
	var requests []request
	for i := range n.znodes {
		z := &n.znodes[i]
		requests = append(requests, n.lock.client.looking(z.path, &z.watch))
	}
	return requests
}

// unwatched returns the znodes whose deletion would not be heard of.
func (n *Node) unwatched() []*znode {
	var znodes []*znode
	for i := range n.znodes {
		if z := &n.znodes[i]; !z.watched {
			znodes = append(znodes, z)
		}
	}
	return znodes
}

// looking is a request that reads a znode and has w hear of its end: it asks for the watch,
// unless there is one.
func (c *Client) looking(path string, w *watcher) reading {
	return reading{path: path, watch: !c.events.listen(path, w), watcher: w}
}

// look asks, and says of each watch that was asked for in vain that there is none, before
// anything is made of the answers.
func (c *Client) look(requests ...request) []answer {
	answers := c.link.ask(requests...)
	for i, q := range requests {
		if r, ok := q.(reading); ok && r.watch && answers[i].err != nil {
			c.events.failed(r.path, r.watcher)
		}
	}
	return answers
}
