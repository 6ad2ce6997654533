package zklock

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	"github.com/cenkalti/backoff/v4"
)

// A reaper deletes the nodes whose fate is uncertain: those that a create without an
// answer may have left, and those whose delete failed. Exclusion never depends on it,
// only the progress of those who queue behind such a node. It keeps at it until the
// node is certain to be gone.
type reaper struct {
	client *Client

	mu      sync.Mutex // guards the fields below
	items   []remains
	working bool // a goroutine is at it
	hurry   bool // there is a new item
}

// remains is what is left of an attempt: the znode at path or, if that is not known,
// whatever child of parent has this prefix, which is unique to the attempt.
type remains struct {
	parent, prefix string
	path           string
	unused         *parent  // instead: a container to delete if it is empty
	refused        error    // why a delete was not permitted, nil if none was tried
	session        *session // that was there then, nil if there was none
}

// maxRemains is where new nodes have to wait for old ones to be removed.
const maxRemains = 1024

func (r *reaper) add(item remains) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.items = append(r.items, item)
	r.hurry = true
	if !r.working { // on a closed client the node goes with the session
		r.working = r.client.spawn(r.run)
	}
}

func (r *reaper) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.items)
}

// stuck says that the znode at path is one of ours that should be gone, and why it is
// not; it returns nil for any other.
func (r *reaper) stuck(path string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, item := range r.items {
		switch {
		case item.path != path:
		case item.refused != nil:
			return fmt.Errorf("waiting behind %s, a node of this process that cannot be deleted: %w", path, item.refused)
		default:
			return fmt.Errorf("waiting behind %s, a node of this process that is still to be deleted", path)
		}
	}
	return nil
}

// room waits until the reaper is not overwhelmed.
func (r *reaper) room(ctx context.Context) error {
	for retry := newBackoff(); r.count() >= maxRemains; {
		if err := pause(ctx, retry.NextBackOff()); err != nil {
			return r.client.explain(err)
		}
	}
	return nil
}

// Reaping returns the number of nodes that are still to be deleted in the background.
func (c *Client) Reaping() int { return c.reaper.count() }

func (r *reaper) run() {
	for retry := newBackoff(); r.sweep(retry); {
		if pause(r.client.ctx, retry.NextBackOff()) != nil {
			return
		}
		if _, err := r.client.await(r.client.ctx); err != nil {
			return
		}
	}
}

// sweep tries each item once and reports whether there is more to do. New items do not
// wait for as long as old ones have to.
func (r *reaper) sweep(retry backoff.BackOff) bool {
	r.mu.Lock()
	items := r.items
	if r.hurry {
		r.hurry = false
		retry.Reset()
	}
	r.mu.Unlock()
	var kept []remains
	for _, item := range items {
		if !r.bury(&item) {
			kept = append(kept, item)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.items = append(kept, r.items[len(items):]...) // others were added meanwhile
	r.working = len(r.items) > 0
	return r.working
}

// bury reports whether the item is certain to be gone.
func (r *reaper) bury(item *remains) bool {
	c := r.client
	if c.Err() != nil || c.link.over() {
		return false
	}
	if item.unused != nil {
		return c.prune(*item.unused)
	}
	var err error
	if item.path == "" {
		var paths []string
		paths, err = c.find(item.parent, item.prefix)
		switch {
		case err == nil && len(paths) == 0:
			return true
		case err == nil:
			item.path = paths[0]
		}
	}
	if err == nil {
		err = lacking("DELETE", parentOf(item.path), c.conn.Delete(item.path, -1))
	}
	switch classify(err) {
	case done, missing:
		return true
	case permanent:
		if item.refused == nil {
			item.refused, item.session = err, c.link.session()
			c.options.logger.Warn("zklock: cannot delete a lock node; it stays in the queue until its session ends, also in the way of this process",
				"path", cmp.Or(item.path, item.parent+"/"+item.prefix), "err", err)
		}
		return item.session == nil || item.session.isOver()
	}
	return false
}
