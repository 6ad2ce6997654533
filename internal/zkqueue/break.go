package zkqueue

import (
	"context"
	"errors"
	"regexp"
	"sync/atomic"

	"github.com/go-zookeeper/zk"
)

// A Breaking deletes the nodes that have one fencing token. These are the nodes of one contender, or of permits that were taken together.
type Breaking struct {
	Token int64

	asked atomic.Bool // a deletion was sent, and it may have been executed, or may still be
}

// Asked reports whether the server may have deleted nodes, or may still delete them. After the end of its ctx, a Try sends no deletion,
// even if it has not returned yet.
func (b *Breaking) Asked() bool { return b.asked.Load() }

// Try deletes the nodes with the token, and reports whether they are deleted. If there are none, it returns false. Try can be called again.
// If an earlier try may have deleted nodes, and they no longer exist, they count as deleted.
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
	case errors.Is(err, zk.ErrNoNode): // one of several nodes may have been deleted before, so the queue has to be read again
		err = ErrDeparted
	}
	if errors.Is(err, ErrDeparted) || errors.Is(err, zk.ErrNoAuth) || errors.Is(err, zk.ErrNoServer) || errors.Is(err, zk.ErrSessionExpired) {
		b.asked.Store(before) // the deletion was not executed
	}
	return false, err
}

// find returns the nodes that have the token.
func (b *Breaking) find(ctx context.Context, path Path) (nodes []string, err error) {
	all, err := path.present(ctx)
	if err != nil {
		return nil, err
	}
	for _, c := range all {
		switch {
		case c.Since.IsZero():
			err = Lacking("READ", path.Node(c.Node), zk.ErrNoAuth) // an unreadable node may be the one with the token
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

// The method delete deletes nodes in one transaction. If another node can have the same name, the operation requires the version that mark
// has set.
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
	b.asked.Store(true) // stored before ctx is checked: if ctx has not ended by then, the caller still waits, and sees it
	if ctx.Err() != nil {
		return ErrDeparted // no caller waits for the answer any more
	}
	_, err := path.Conn.Multi(ops...)
	if errors.Is(err, zk.ErrBadVersion) {
		return ErrDeparted
	}
	return Lacking("DELETE", path.Name, err)
}

// The expression unique matches names that contain a UUID, which is created for each node.
var unique = regexp.MustCompile(`[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// reusable reports whether another node can get the same name. This can happen after the path has been deleted and created again, because
// its sequence numbers then start again.
func reusable(name string) bool { return !unique.MatchString(name) }

// mark writes the content of the node to the node again, and returns the new version of the node. A new node of the same name would have
// version 0. Therefore a deletion with the returned version hits only the marked node.
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
