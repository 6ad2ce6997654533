package zkqueue

import (
	"context"
	"errors"
	"regexp"

	"github.com/go-zookeeper/zk"
)

// A Breaking is the deletion of the node of the contender with a token.
type Breaking struct {
	Token   int64
	Waiting bool // it may be one that waits; else it has to have the lock

	target *Contender // whose deletion was asked for, without an answer
}

// Try returns what was deleted, nil if there is nothing to delete. It can be called again: then what an earlier try may have deleted, and
// is gone, counts as deleted.
func (b *Breaking) Try(ctx context.Context, path Path) (*Contender, error) {
	head, err := b.find(ctx, path)
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
		return nil, ErrDeparted
	case errors.Is(err, ErrDeparted), errors.Is(err, zk.ErrNoServer), errors.Is(err, zk.ErrSessionExpired): // not executed
	default:
		b.target = head
	}
	return nil, err
}

// find reads the node with the token, nil if there is none.
func (b *Breaking) find(ctx context.Context, path Path) (*Contender, error) {
	read := path.Holders
	if b.Waiting {
		read = path.present
	}
	all, err := read(ctx)
	if err != nil {
		return nil, err
	}
	for i, c := range all {
		switch {
		case c.Since.IsZero():
			err = Lacking("READ", path.Node(c.Node), zk.ErrNoAuth) // it may be the one
		case c.Token == b.Token:
			return &all[i], nil
		}
	}
	return nil, err
}

// delete asks for all that is left of the node to go. Whoever is at the head stays there until it
// goes, and its name is its own; where that is not so, its version has to be.
func (b *Breaking) delete(path Path, head *Contender) error {
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
		return ErrDeparted
	}
	return Lacking("DELETE", path.Name, err)
}

// unique are the names with a part that is made up for each node.
var unique = regexp.MustCompile(`[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// reusable reports whether another node can have the same name, once the path has been made anew
// and its numbers start again.
func reusable(name string) bool { return !unique.MatchString(name) }

// mark writes to a node what is in it, and returns its new version. Another node of that name
// begins with version 0.
func (b *Breaking) mark(path Path, head *Contender) (version int32, err error) {
	node := path.Node(head.Node)
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
