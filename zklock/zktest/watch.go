package zktest

import (
	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/wire"
)

// A watches has the one-shot watches that the connections of one member have set. As on a real server, a watch set by exists on a missing
// node is a data watch.
type watches struct {
	data  watchTable
	child watchTable
}

type watchTable map[string]map[*conn]struct{}

func newWatches() watches { return watches{data: make(watchTable), child: make(watchTable)} }

func (w watchTable) add(path string, c *conn) {
	if w[path] == nil {
		w[path] = make(map[*conn]struct{})
	}
	w[path][c] = struct{}{}
}

func (w watchTable) remove(path string, c *conn) {
	if delete(w[path], c); len(w[path]) == 0 {
		delete(w, path)
	}
}

func (w watchTable) drop(c *conn) {
	for path := range w {
		w.remove(path, c)
	}
}

// trigger sends an event to the connections that watch path, and returns these connections. It sends nothing to the connections in but, or
// to connections that acl does not permit to read the node. Since CVE-2024-23944 servers check this permission. The watch is used up even
// if its event is not sent.
func (w watchTable) trigger(path string, kind zk.EventType, acl []aclEntry, but map[*conn]struct{}) map[*conn]struct{} {
	conns := w[path]
	delete(w, path)
	for c := range conns {
		if _, told := but[c]; !told && permitted(acl, permRead, c.auth) {
			c.sendEvent(kind, path)
		}
	}
	return conns
}

func (w watchTable) count() int {
	n := 0
	for _, conns := range w {
		n += len(conns)
	}
	return n
}

// fire sends the events of a transaction.
func (w watches) fire(d *delta) {
	for i, c := range d.changes {
		parent, _ := splitPath(c.Path)
		acl := d.acls[i]
		switch c.Op {
		case "create":
			w.data.trigger(c.Path, zk.EventNodeCreated, acl.node, nil)
			w.child.trigger(parent, zk.EventNodeChildrenChanged, acl.parent, nil)
		case "delete":
			told := w.data.trigger(c.Path, zk.EventNodeDeleted, acl.node, nil)
			w.child.trigger(c.Path, zk.EventNodeDeleted, acl.node, told)
			w.child.trigger(parent, zk.EventNodeChildrenChanged, acl.parent, nil)
		case "setData":
			w.data.trigger(c.Path, zk.EventNodeDataChanged, acl.node, nil)
		}
	}
}

// restore sets the watches of a client that has reconnected. If a node has changed since q.Zxid, the client gets the event at once.
func (w watches) restore(c *conn, t *tree, q wire.SetWatches) {
	for _, path := range q.Data {
		switch n := t.nodes[path]; {
		case n == nil:
			c.sendEvent(zk.EventNodeDeleted, path)
		case n.stat.Mzxid > q.Zxid:
			c.sendEvent(zk.EventNodeDataChanged, path)
		default:
			w.data.add(path, c)
		}
	}
	for _, path := range q.Exist {
		if t.nodes[path] != nil {
			c.sendEvent(zk.EventNodeCreated, path)
		} else {
			w.data.add(path, c)
		}
	}
	for _, path := range q.Children {
		switch n := t.nodes[path]; {
		case n == nil:
			c.sendEvent(zk.EventNodeDeleted, path)
		case n.stat.Pzxid > q.Zxid:
			c.sendEvent(zk.EventNodeChildrenChanged, path)
		default:
			w.child.add(path, c)
		}
	}
}
