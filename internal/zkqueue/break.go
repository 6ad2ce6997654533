package zkqueue

import (
	"context"
	"errors"
	"regexp"
	"sync/atomic"

	"github.com/go-zookeeper/zk"
)

// A Breaking is the deletion of the nodes with one fencing token: the nodes of one contender, or of permits that were taken together.
type Breaking struct {
	Token int64

	asked atomic.Bool // a deletion that no answer says was not executed
}

// Asked reports whether the server may have deleted nodes, or may yet delete them. A Try that is still under way after the end of its ctx
// sends no deletion any more.
func (b *Breaking) Asked() bool { return b.asked.Load() }

// Try reports whether the nodes were deleted; it finds none if they were not. Try can be called again: nodes that an earlier try may have
// deleted, and that are gone, count as deleted.
func (b *Breaking) Try(ctx context.Context, path Path) (deleted bool, err error) {
	nodes, err := b.find(ctx, path)
	if err != nil {
		return false, err
	}
	if len(nodes) == 0 {
		return b.asked.Load(), nil
	}
	before := b.asked.Load()
	err = b.delete(ctx, path, nodes)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, zk.ErrNoNode): // or one of several has gone: look again
		err = ErrDeparted
	}
	if errors.Is(err, ErrDeparted) || errors.Is(err, zk.ErrNoAuth) || errors.Is(err, zk.ErrNoServer) || errors.Is(err, zk.ErrSessionExpired) {
		b.asked.Store(before) // not executed
	}
	return false, err
}

// find reads which nodes have the token.
func (b *Breaking) find(ctx context.Context, path Path) (nodes []string, err error) {
	all, err := path.present(ctx)
	if err != nil {
		return nil, err
	}
	for _, c := range all {
		switch {
		case c.Since.IsZero():
			err = Lacking("READ", path.Node(c.Node), zk.ErrNoAuth) // it may be the one
		case c.Token == b.Token && c.Pair != "":
			nodes = append(nodes, c.Node, c.Pair)
		case c.Token == b.Token:
			nodes = append(nodes, c.Node)
		}
	}
	if len(nodes) > 0 {
		return nodes, nil
	}
	return nil, err
}

// delete deletes nodes in one transaction. Where another node can have the same name, the version has to be the one that mark has made.
func (b *Breaking) delete(ctx context.Context, path Path, nodes []string) error {
	ops := make([]any, len(nodes))
	for i, name := range nodes {
		request := &zk.DeleteRequest{Path: path.Node(name), Version: -1}
		if reusable(name) {
			var err error
			if request.Version, err = b.mark(path, request.Path); err != nil {
				return err
			}
		}
		ops[i] = request
	}
	b.asked.Store(true) // before the look at ctx: if that has not ended, the caller is still there to see it
	if ctx.Err() != nil {
		return ErrDeparted // no caller waits for the answer any more
	}
	_, err := path.Conn.Multi(ops...)
	if errors.Is(err, zk.ErrBadVersion) {
		return ErrDeparted
	}
	return Lacking("DELETE", path.Name, err)
}

// unique matches names that contain a UUID, which is made up for each node.
var unique = regexp.MustCompile(`[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// reusable reports whether another node can get the same name, once the path has been deleted and created again and its sequence numbers
// start anew.
func reusable(name string) bool { return !unique.MatchString(name) }

// mark writes the node's own content to the node again, and returns its new version. Another node of that name would have version 0, so a
// deletion with this version hits only the marked one.
func (b *Breaking) mark(path Path, node string) (version int32, err error) {
	data, stat, err := path.Conn.Get(node)
	if err != nil {
		return 0, Lacking("READ", node, err)
	}
	if stat.Czxid == b.Token {
		stat, err = path.Conn.Set(node, data, stat.Version)
	}
	switch {
	case errors.Is(err, zk.ErrBadVersion), err == nil && stat.Czxid != b.Token:
		return 0, ErrDeparted
	case err != nil:
		return 0, Lacking("WRITE", node, err)
	}
	return stat.Version, nil
}
