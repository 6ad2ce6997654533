package zkinspect

import (
	"context"
	"errors"
	"regexp"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/inspect"
	"github.com/tierlock/tierlock/internal/zkqueue"
)

// Revoke asks those that have the lock to give it up, and returns them as they were before; see [zkqueue.Path.Revoke].
func (r Reader) Revoke(ctx context.Context, path string) ([]inspect.Contender, error) {
	told, err := ask(ctx, r.Client, "revoke", path, func(p zkqueue.Path) ([]zkqueue.Contender, error) { return p.Revoke(ctx) })
	return Describe(told, time.Now()), err
}

// Break deletes the node of the holder of the lock if its fencing token is the given one, whoever
// made it, and returns what it was, nil if nobody has the lock under that token. Of several that read it deletes the one
// with the token. The next contender is granted the lock
// at once, although the former holder may still work. That holder hears of it from its server,
// or T/6 after the grant if that is later.
//
// Nothing was deleted if the error wraps [zk.ErrNoAuth]. An answer that is lost is asked for again until ctx is done; if the node is
// gone by then, that is a success, although its owner may have deleted it. If ctx ends first, the
// outcome is unknown, and the node may still be deleted.
func (r Reader) Break(ctx context.Context, path string, token int64) (*inspect.Contender, error) {
	b := breaking{ctx: ctx, token: token}
	former, err := ask(ctx, r.Client, "break", path, b.try)
	if former == nil || err != nil {
		return nil, err
	}
	return &Describe([]zkqueue.Contender{*former}, time.Now())[0], nil
}

// A breaking is the deletion of a holder's node.
type breaking struct {
	ctx    context.Context
	token  int64
	target *zkqueue.Contender // whose deletion was asked for, without an answer
}

// try returns what was deleted, nil if there is nobody to delete.
func (b *breaking) try(path zkqueue.Path) (*zkqueue.Contender, error) {
	head, err := b.holder(path)
	if err != nil {
		return nil, err
	}
	if head == nil {
		return b.target, nil
	}
	err = b.delete(path, head)
	switch {
	case err == nil:
		return head, nil
	case errors.Is(err, zk.ErrNoNode): // or half of a pair has gone: look again
		return nil, zkqueue.ErrDeparted
	case errors.Is(err, zkqueue.ErrDeparted), errors.Is(err, zk.ErrNoServer), errors.Is(err, zk.ErrSessionExpired): // not executed
	default:
		b.target = head
	}
	return nil, err
}

// holder reads who has the lock now with the token, nil if nobody does.
func (b *breaking) holder(path zkqueue.Path) (*zkqueue.Contender, error) {
	holders, err := path.Holders(b.ctx)
	for i, h := range holders {
		switch {
		case h.Since.IsZero():
			return nil, zkqueue.Lacking("READ", path.Node(h.Node), zk.ErrNoAuth)
		case h.Token == b.token:
			return &holders[i], nil
		}
	}
	return nil, err
}

// delete asks for all that is left of the node to go. Whoever is at the head stays there until it
// goes, and its name is its own; where that is not so, its version has to be.
func (b *breaking) delete(path zkqueue.Path, head *zkqueue.Contender) error {
	version := int32(-1)
	if reusable(head.Node) {
		var err error
		if version, err = b.mark(path, head); err != nil {
			return err
		}
	}
	first := &zk.DeleteRequest{Path: path.Node(head.Node), Version: version}
	var err error
	if head.Pair == "" {
		err = path.Conn.Delete(first.Path, first.Version)
	} else {
		_, err = path.Conn.Multi(first, &zk.DeleteRequest{Path: path.Node(head.Pair), Version: -1})
	}
	if errors.Is(err, zk.ErrBadVersion) {
		return zkqueue.ErrDeparted
	}
	return zkqueue.Lacking("DELETE", path.Name, err)
}

// unique are the names with a part that is made up for each node.
var unique = regexp.MustCompile(`[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// reusable reports whether another node can have the same name, once the path has been made anew
// and its numbers start again.
func reusable(name string) bool { return !unique.MatchString(name) }

// mark writes to a node what is in it, and returns its new version. Another node of that name
// begins with version 0.
func (b *breaking) mark(path zkqueue.Path, head *zkqueue.Contender) (version int32, err error) {
	node := path.Node(head.Node)
	data, stat, err := path.Conn.Get(node)
	if err != nil {
		return 0, zkqueue.Lacking("READ", node, err)
	}
	if stat.Czxid == b.token {
		stat, err = path.Conn.Set(node, data, stat.Version)
	}
	switch {
	case errors.Is(err, zk.ErrBadVersion), err == nil && stat.Czxid != b.token:
		return 0, zkqueue.ErrDeparted
	case err != nil:
		return 0, zkqueue.Lacking("WRITE", node, err)
	}
	return stat.Version, nil
}
