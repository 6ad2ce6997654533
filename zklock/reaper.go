package zklock

import (
	"context"
	"fmt"
	"slices"

	"github.com/tierlock/tierlock/internal/reaper"
	"github.com/tierlock/tierlock/zklock/internal/link"
)

// remains is what is left of an attempt: the znodes at paths or, if these are not known,
// whatever children of parent have these prefixes, which are unique to the attempt. The reaper
// deletes them.
type remains struct {
	parent   string
	prefixes []string // nil when it is known what they have come to
	paths    []string
	unused   *parent       // instead: a container to delete if it is empty
	refused  error         // why a delete was not permitted, nil if none was tried
	session  *link.Session // that was there then, nil if there was none
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
	item, found := c.reaper.Find(func(item remains) bool { return slices.Contains(item.paths, path) })
	switch {
	case !found:
		return nil
	case item.refused != nil:
		return fmt.Errorf("waiting behind %s, a node of this process that cannot be deleted: %w", path, item.refused)
	}
	return fmt.Errorf("waiting behind %s, a node of this process that is still to be deleted", path)
}

// first is the path of one of them, as far as it is known.
func (r remains) first() string {
	if len(r.paths) > 0 {
		return r.paths[0]
	}
	return r.parent + "/" + r.prefixes[0]
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
		_, err = c.link.Transact(deletesOf(item.paths)...)
		err = lacking("DELETE", item.parent, err)
	}
	switch classify(err) {
	case done:
		return true
	case missing: // one of them, and nothing was done
		item.prefixes = namesOf(item.paths)
		return len(item.paths) == 1
	case permanent:
		if item.refused == nil {
			item.refused, item.session = err, c.link.Session()
			c.options.logger.Warn("zklock: cannot delete a lock node; it stays in the queue until its session ends, also in the way of this process",
				"path", item.first(), "err", err)
		}
		return item.session == nil || item.session.Over()
	}
	return false
}
