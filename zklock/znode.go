package zklock

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"
)

// A znode is what a node is on the server.
type znode struct {
	path  string
	watch watcher // of the znode itself
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
	if pause(n.lock.client.ctx, 10*time.Millisecond) == nil {
		n.bury()
	}
}

// check looks whether a node is still there and still ours, and sees to it that its
// deletion is watched.
func (n *Node) check() {
	for i := range n.znodes {
		z := &n.znodes[i]
		stat, err := n.look(z)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			n.vanish(z)
		case err != nil: // nothing learned; the lease decides
		case n.bound.Load() && stat.EphemeralOwner != n.session.id: // before that, the attempt looks itself
			n.lose(fmt.Errorf("%w: node %s belongs to session 0x%x", ErrLost, z.path, uint64(stat.EphemeralOwner)))
		}
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

// look reads one of the znodes and sees to it that its deletion is watched.
func (n *Node) look(z *znode) (*zk.Stat, error) {
	c := n.lock.client
	if c.events.listen(z.path, &z.watch) {
		exists, stat, err := c.conn.Exists(z.path)
		if err == nil && !exists {
			err = zk.ErrNoNode
		}
		return stat, err
	}
	_, stat, events, err := c.conn.GetW(z.path)
	if err != nil {
		c.events.failed(z.path, &z.watch)
		return nil, err
	}
	c.link.watched(events)
	return stat, nil
}
