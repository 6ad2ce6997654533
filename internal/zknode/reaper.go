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

// A reaper deletes znodes that may be left on the server, because a request had no answer or a delete failed. Mutual exclusion does not
// depend on the reaper, but the contenders behind such a znode wait for it. The reaper retries each item separately until its znodes are
// certainly deleted.
type reaper struct {
	client *Client

	mu    sync.Mutex           // guards the field below
	items map[*remains]remains // the value is the item as it was last tried
}

// A remains describes the znodes that an attempt may have left. If their paths are known, they are in paths. Otherwise they are the
// children of parent whose names begin with one of the prefixes. No other attempt uses these prefixes.
type remains struct {
	parent   string
	prefixes []string // nil if the paths are known
	paths    []string
	refused  error         // why a delete was not permitted; nil if it was not refused
	session  *link.Session // the session at the time of the refusal; nil if there was none
}

// add queues an item for the reaper. If the client is closed, the znodes end with the session instead.
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

// note stores the new state of the item. If gone is true, note removes the item.
func (r *reaper) note(item *remains, gone bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if gone {
		delete(r.items, item)
	} else {
		r.items[item] = *item
	}
}

// count returns the number of items.
func (r *reaper) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.items)
}

// If there are maxItems items or more, new contenders wait until some are removed.
const maxItems = 1024

// The method room waits until the reaper has fewer than maxItems items. If ctx ends first, it returns the cause of ctx.
func (r *reaper) room(ctx context.Context) error {
	for pace := retry.New(); r.count() >= maxItems; {
		if err := retry.Pause(ctx, pace.NextBackOff()); err != nil {
			return err
		}
	}
	return nil
}

// stuck returns why a znode at path that the reaper has to delete still exists. If the reaper does not have to delete it, stuck returns
// nil.
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

// remove tries once to delete the znodes of an item. It returns true if they are certainly deleted.
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
	case missing: // one of the znodes is missing, and the transaction has deleted none
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

// find returns the paths of the children of parent whose names begin with one of the prefixes, in the order of the prefixes. Each prefix is
// unique. find first sends a write that changes nothing, for two reasons: the present server may lag behind the server that executed the
// create, and a deposed leader answers a sync from its past. After the write no late request of an earlier connection can be executed,
// because the server that takes the session over refuses them.
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
