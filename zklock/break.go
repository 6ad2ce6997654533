package zklock

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/second"
)

// Break deletes the node of the holder of the lock if its fencing token is the given one, whoever
// made it, and returns what it was. Of several that read it deletes the one with the token, which is
// that of [Contender]. It is for operators: the next contender is granted the lock
// at once, although the former holder may still work. That holder hears of it from its server,
// or T/6 after the grant if that is later.
//
// Nothing was deleted if the error wraps [ErrNotHolder], whose text says who holds the lock now, or
// [zk.ErrNoAuth]. An answer that is lost is asked for again until ctx is done; if the node is gone
// by then, that is a success, although its owner may have deleted it. If ctx ends first, the
// outcome is unknown, and the node may still be deleted.
func (l *Lock) Break(ctx context.Context, token int64) (Contender, error) {
	b := breaking{lock: l, token: token}
	broken, err := ask(ctx, l.client, b.try)
	if err != nil {
		return Contender{}, fmt.Errorf("zklock: break %s: %w", l.path, err)
	}
	return broken, nil
}

// A breaking is the deletion of a holder's node.
type breaking struct {
	lock   *Lock
	token  int64
	target *Contender // whose deletion was asked for, without an answer
}

// errDeparted says that the head of the queue went between the look and the delete.
var errDeparted = errors.New("the holder has just gone")

func (b *breaking) try(context.Context) (Contender, error) {
	head, err := b.holder()
	if err != nil {
		return Contender{}, err
	}
	if head == nil || head.Token != b.token {
		if b.target != nil {
			return *b.target, nil
		}
		return Contender{}, b.refuse(head)
	}
	err = b.delete(head)
	switch outcome := classify(err); {
	case outcome == done:
		return *head, nil
	case outcome == missing:
		return Contender{}, errDeparted // or half of a pair has: look again
	case outcome == uncertain && !errors.Is(err, errDeparted):
		b.target = head
	}
	return Contender{}, err
}

// holder reads who holds the lock now: with the token, if anybody does, or else the first; nil if
// nobody does.
func (b *breaking) holder() (*Contender, error) {
	holders, err := b.lock.holders()
	if err != nil || len(holders) == 0 {
		return nil, err
	}
	for i, h := range holders {
		switch {
		case h.Since.IsZero():
			return nil, lacking("READ", b.lock.path+"/"+h.Node, zk.ErrNoAuth)
		case h.Token == b.token:
			return &holders[i], nil
		}
	}
	return &holders[0], nil
}

// holders reads who has the lock now: the head of the queue or, if that reads, those up to the first
// that does not. The sync is for a server that lags.
func (l *Lock) holders() ([]Contender, error) {
	conn, path := l.client.link.Conn, l.path
	if _, err := conn.Sync(path); err != nil && classify(err) != missing {
		return nil, err
	}
	children, _, err := conn.Children(path)
	switch {
	case classify(err) == missing:
		return nil, nil
	case err != nil:
		return nil, lacking("READ", path, err)
	}
	queue, _ := ParseQueue(children)
	var holders []Contender
	for i, q := range queue {
		if i > 0 && !(queue[0].Kind.Reads() && q.Kind.Reads()) {
			break
		}
		switch err := l.client.fill(path, &q); {
		case classify(err) == missing:
		case err != nil:
			return nil, err
		default:
			holders = append(holders, q)
		}
	}
	if len(holders) == 0 && len(queue) > 0 {
		return nil, errDeparted
	}
	return holders, nil
}

func (b *breaking) refuse(head *Contender) error {
	if head == nil {
		return fmt.Errorf("%w: token %d, but nobody holds the lock", ErrNotHolder, b.token)
	}
	return fmt.Errorf("%w: token %d, but the lock is held with token %d by %s (%s, host \"%s\", pid %d, label \"%s\")",
		ErrNotHolder, b.token, head.Token, second.Text(head.Node), head.Kind, head.Host, head.PID, head.Label)
}

// delete asks for all that is left of the node to go. Whoever is at the head stays there until it
// goes, and its name is its own; where that is not so, its version has to be.
func (b *breaking) delete(head *Contender) error {
	version := int32(-1)
	if reusable(head.Node) {
		var err error
		if version, err = b.mark(head); err != nil {
			return err
		}
	}
	ops := []any{&zk.DeleteRequest{Path: b.lock.path + "/" + head.Node, Version: version}}
	if head.Pair != "" {
		ops = append(ops, &zk.DeleteRequest{Path: b.lock.path + "/" + head.Pair, Version: -1})
	}
	_, err := b.lock.client.link.Transact(ops...)
	if errors.Is(err, zk.ErrBadVersion) {
		return errDeparted
	}
	return lacking("DELETE", b.lock.path, err)
}

// unique are the names with a part that is made up for each node.
var unique = regexp.MustCompile(`[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// reusable reports whether another node can have the same name, once the path has been made anew
// and its numbers start again.
func reusable(name string) bool { return !unique.MatchString(name) }

// mark writes to a node what is in it, and returns its new version. Another node of that name
// begins with version 0.
func (b *breaking) mark(head *Contender) (version int32, err error) {
	conn, path := b.lock.client.link.Conn, b.lock.path+"/"+head.Node
	data, stat, err := conn.Get(path)
	if err != nil {
		return 0, lacking("READ", path, err)
	}
	if stat.Czxid == b.token {
		stat, err = conn.Set(path, data, stat.Version)
	}
	switch {
	case errors.Is(err, zk.ErrBadVersion), err == nil && stat.Czxid != b.token:
		return 0, errDeparted
	case err != nil:
		return 0, lacking("WRITE", path, err)
	}
	return stat.Version, nil
}
