package zklock

import (
	"strings"

	"github.com/go-zookeeper/zk"
)

// transact runs a transaction and returns the paths of the znodes that it created.
func (c *Client) transact(ops ...any) (created []string, err error) {
	a := c.link.ask(transaction(ops))[0]
	return a.created, a.err
}

// reading is a request that reads a znode and has w hear of its end: it asks for the watch,
// unless there is one.
func (c *Client) reading(path string, w *watcher) reading {
	return reading{path: path, watch: !c.events.listen(path, w), watcher: w}
}

// read asks, and says of each watch that was asked for in vain that there is none, before
// anything is made of the answers.
func (c *Client) read(requests ...request) []answer {
	answers := c.link.ask(requests...)
	for i, q := range requests {
		if r, ok := q.(reading); ok && r.watch && answers[i].err != nil {
			c.events.failed(r.path, r.watcher)
		}
	}
	return answers
}

// watchQueue lists the queue at path and sees to it that w hears of its next change.
func (c *Client) watchQueue(path string, w *watcher) ([]string, error) {
	armed := c.events.listen(path, w)
	queue := c.link.ask(listing{path, !armed})[0]
	switch {
	case armed:
	case queue.err != nil:
		c.events.failed(path, w)
	default:
		c.events.begun(path, w)
	}
	return queue.children, queue.err
}

// find returns the paths of those children of parent whose names start with a prefix, in
// the order of the prefixes, each of which is unique. It writes first, though nothing:
// another server may lag behind the one that took the create, and a leader that was deposed
// and does not know answers a sync from its past. After that nothing can come late any
// more, since a server that takes a session over shuts out the connection before.
func (c *Client) find(parent string, prefixes ...string) (paths []string, err error) {
	if _, err = c.transact(&zk.CheckVersionRequest{Path: parent, Version: -1}); err != nil && classify(err) != missing {
		return nil, lacking("READ", parent, err)
	}
	queue := c.link.ask(listing{path: parent})[0]
	if classify(queue.err) == missing {
		return nil, nil
	}
	if queue.err != nil {
		return nil, lacking("READ", parent, queue.err)
	}
	for _, prefix := range prefixes {
		for _, name := range queue.children {
			if strings.HasPrefix(name, prefix) {
				paths = append(paths, parent+"/"+name)
			}
		}
	}
	return paths, nil
}
