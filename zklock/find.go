package zklock

import (
	"strings"

	"github.com/go-zookeeper/zk"
	"github.com/tierlock/tierlock/zklock/internal/link"
)

// find returns the paths of those children of parent whose names start with a prefix, in
// the order of the prefixes, each of which is unique. It writes first, though nothing:
// another server may lag behind the one that took the create, and a leader that was deposed
// and does not know answers a sync from its past. After that nothing can come late any
// more, since a server that takes a session over shuts out the connection before.
func find(l *link.Link, parent string, prefixes ...string) (paths []string, err error) {
	if _, err = l.Transact(&zk.CheckVersionRequest{Path: parent, Version: -1}); err != nil && classify(err) != missing {
		return nil, lacking("READ", parent, err)
	}
	queue := l.Ask(link.Listing{Path: parent})[0]
	if classify(queue.Err) == missing {
		return nil, nil
	}
	if queue.Err != nil {
		return nil, lacking("READ", parent, queue.Err)
	}
	for _, prefix := range prefixes {
		for _, name := range queue.Children {
			if strings.HasPrefix(name, prefix) {
				paths = append(paths, parent+"/"+name)
			}
		}
	}
	return paths, nil
}
