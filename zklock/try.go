package zklock

import (
	"errors"

	"github.com/go-zookeeper/zk"
	"github.com/tierlock/tierlock/zklock/internal/link"
)

// try acquires the lock if it is free.
func (a *attempt) try() (*Node, error) {
	a.once = true
	if err := a.client.Err(); err != nil {
		return nil, err
	}
	queue := a.client.link.Ask(link.Listing{Path: a.lock.path})[0]
	switch classify(queue.Err) {
	case done:
		taken, err := occupied(queue.Children, a.lock.mode)
		if err != nil {
			return nil, err
		}
		if taken {
			return nil, ErrLocked
		}
	case missing: // the parents are, too, or most of them
		if err := a.beginBuilding(); err != nil {
			return nil, err
		}
	default:
		return nil, lacking("READ", a.lock.path, queue.Err)
	}
	n, err := a.enqueue()
	if err != nil {
		return nil, err
	}
	s, err := a.enter(n)
	switch {
	case errors.Is(err, errGone):
		err = a.client.link.Explain(zk.ErrSessionExpired)
	case err != nil:
	case s.ahead > 0:
		err = ErrLocked
	case n.grant(s):
		return n.Node, nil
	default:
		err = a.client.link.Explain(n.ungranted())
	}
	n.discard()
	return nil, err
}

// ungranted says why a node at the head of the queue is not held.
func (n *Node) ungranted() error {
	if n.leased() && !n.session.Over() {
		return errors.New("the lease has run out and is yet to be renewed")
	}
	return zk.ErrSessionExpired
}
