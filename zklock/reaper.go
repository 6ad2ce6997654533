package zklock

import (
	"cmp"
	"context"
	"fmt"

	"github.com/tierlock/tierlock/internal/reaper"
	"github.com/tierlock/tierlock/zklock/internal/link"
)

// remains is what is left of an attempt: the znode at path or, if that is not known,
// whatever child of parent has this prefix, which is unique to the attempt. The reaper
// deletes it.
type remains struct {
	parent, prefix string
	path           string
	unused         *parent       // instead: a container to delete if it is empty
	refused        error         // why a delete was not permitted, nil if none was tried
	session        *link.Session // that was there then, nil if there was none
}

func newReaper(c *Client) *reaper.Reaper[remains] {
	return reaper.New(reaper.Config[remains]{
		Remove: c.remove,
		Await: func(ctx context.Context) error {
			_, err := c.link.AwaitSession(ctx)
			return err
		},
		Spawn:   c.link.Spawn,
		Context: c.link.Context(),
	})
}

// stuck says that the znode at path is one of ours that should be gone, and why it is
// not; it returns nil for any other.
func (c *Client) stuck(path string) error {
	item, found := c.reaper.Find(func(item remains) bool { return item.path == path })
	switch {
	case !found:
		return nil
	case item.refused != nil:
		return fmt.Errorf("waiting behind %s, a node of this process that cannot be deleted: %w", path, item.refused)
	}
	return fmt.Errorf("waiting behind %s, a node of this process that is still to be deleted", path)
}

// remove tries once, and reports whether the item is certain to be gone.
func (c *Client) remove(item *remains) bool {
	if c.Err() != nil || c.link.Over() {
		return false
	}
	if item.unused != nil {
		return c.prune(*item.unused)
	}
	var err error
	if item.path == "" {
		var paths []string
		paths, err = find(c.link, item.parent, item.prefix)
		switch {
		case err == nil && len(paths) == 0:
			return true
		case err == nil:
			item.path = paths[0]
		}
	}
	if err == nil {
		err = lacking("DELETE", parentOf(item.path), c.link.Conn.Delete(item.path, -1))
	}
	switch classify(err) {
	case done, missing:
		return true
	case permanent:
		if item.refused == nil {
			item.refused, item.session = err, c.link.Session()
			c.options.logger.Warn("zklock: cannot delete a lock node; it stays in the queue until its session ends, also in the way of this process",
				"path", cmp.Or(item.path, item.parent+"/"+item.prefix), "err", err)
		}
		return item.session == nil || item.session.Over()
	}
	return false
}
