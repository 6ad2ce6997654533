package zknode

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/internal/zknode/internal/link"
	"github.com/tierlock/tierlock/internal/zkqueue"
)

// A reaper deletes znodes that may be left on the server, because a request had no answer or a delete failed. Exclusion never depends on
// it, only the progress of the contenders behind. It retries each item by itself until the item is certainly gone.
type reaper struct {
	client *Client

	mu    sync.Mutex           // guards the field below
	items map[*remains]remains // as last tried
}

// remains are the znodes that an attempt may have left: those at paths or, if these are not known, the children of parent with these
// prefixes, which are unique to the attempt. The reaper deletes them.
type remains struct {
	parent   string
	prefixes []string // nil when the paths are known
	paths    []string
	refused  error         // why a delete was not permitted, nil if none was tried
	session  *link.Session // the session at that time, nil if there was none
}

// add queues an item for the reaper, unless the client is closed: then the znodes end with the session.
func (r *reaper) add(item remains) {
	r.note(&item, false)
	l := r.client.link
	l.Spawn(func() {
		for pace := retry.New(); ; {
			gone := r.client.remove(&item)
			r.note(&item, gone)
			if gone || retry.Pause(l.Context(), pace.NextBackOff()) != nil {
				return
			}
			if _, err := l.AwaitSession(l.Context()); err != nil {
				return
			}
		}
	})
}

// note updates the item, or removes it if it is gone.
func (r *reaper) note(item *remains, gone bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if gone {
		delete(r.items, item)
	} else {
		r.items[item] = *item
	}
}

// count returns how many items there are.
func (r *reaper) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.items)
}

// maxItems is the number of items from which on new contenders wait for old ones to be removed.
const maxItems = 1024

// room waits until the reaper is not overwhelmed, or returns the cause of ctx.
func (r *reaper) room(ctx context.Context) error {
	for pace := retry.New(); r.count() >= maxItems; {
		if err := retry.Pause(ctx, pace.NextBackOff()); err != nil {
			return err
		}
	}
	return nil
}

// stuck returns why the znode at path still exists, if it is one of ours that the reaper has to delete; it returns nil for any other.
func (r *reaper) stuck(path string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, item := range r.items {
		switch {
		case !slices.Contains(item.paths, path):
		case item.refused != nil:
			return fmt.Errorf("waiting behind %s, a node of this process that cannot be deleted: %w", path, item.refused)
		default:
			return fmt.Errorf("waiting behind %s, a node of this process that is still to be deleted", path)
		}
	}
	return nil
}

// remove tries once, and reports whether the item is certain to be gone.
func (c *Client) remove(item *remains) bool {
	if c.Err() != nil || c.link.Closed() {
		return false
	}
	var err error
	if item.prefixes != nil {
		var paths []string
		paths, err = find(c.link, item.parent, item.prefixes...)
		switch {
		case err == nil && len(paths) == 0:
			return true
		case err == nil:
			item.paths, item.prefixes = paths, nil
		}
	}
	if err == nil {
		err = c.link.Transact(deletesOf(item.paths)...)
		err = zkqueue.Lacking("DELETE", item.parent, err)
	}
	switch classify(err) {
	case done:
		return true
	case missing: // one of them is missing, and nothing was done
		item.prefixes = namesOf(item.paths)
		return len(item.paths) == 1
	case permanent:
		if item.refused == nil {
			item.refused, item.session = err, c.link.Session()
			c.log().Stays(strings.TrimPrefix(item.parent, c.chroot), append(namesOf(item.paths), item.prefixes...)[0], err)
		}
		return item.session == nil || item.session.Over()
	}
	return false
}

// find returns the paths of the children of parent whose names start with a prefix, in the order of the prefixes. A prefix is unique. find
// first sends a write that changes nothing: another server may lag behind the one that executed the create, and a deposed leader answers a
// sync from its past. After that no late request can be executed, since a server that takes a session over refuses the earlier connection.
func find(l *link.Link, parent string, prefixes ...string) (paths []string, err error) {
	answers := l.Ask(link.Transaction{&zk.CheckVersionRequest{Path: parent, Version: -1}}, link.List(parent))
	for _, a := range answers {
		if a.Err != nil && classify(a.Err) != missing {
			return nil, zkqueue.Lacking("READ", parent, a.Err)
		}
	}
	for _, prefix := range prefixes {
		for _, name := range answers[1].Children {
			if strings.HasPrefix(name, prefix) {
				paths = append(paths, parent+"/"+name)
			}
		}
	}
	return paths, nil
}
