package zklock

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"
)

// acquire runs the life of a node up to the grant.
//
//	enqueue: create, look up what an unanswered create left
//	climb:   verify, list, watch the predecessor, wait, list …
//
// It begins anew, with a new node, when the node is lost on the way.
func (a *attempt) acquire() (*Node, error) {
	return a.queue((*attempt).enqueue)
}

// requeue is acquire with the first create and the delete of old in one transaction.
func (a *attempt) requeue(old *Node) (*Node, error) {
	replaced := false
	return a.queue(func(a *attempt) (*Node, error) {
		if replaced {
			return a.enqueue()
		}
		replaced = true
		return a.replace(old)
	})
}

func (a *attempt) queue(enqueue func(*attempt) (*Node, error)) (*Node, error) {
	for retry := newBackoff(); ; {
		n, err := enqueue(a)
		if err != nil {
			return nil, err
		}
		err = a.climb(n)
		if err == nil {
			return n, nil
		}
		n.discard()
		if !errors.Is(err, errGone) {
			return nil, err
		}
		if err := a.pause(retry, err); err != nil {
			return nil, err
		}
	}
}

// climb waits until the node is at the head of the queue, and holds it.
func (a *attempt) climb(n *Node) error {
	if a.ctx.Err() != nil {
		return context.Cause(a.ctx)
	}
	s, err := a.enter(n)
	for retry := newBackoff(); ; {
		switch {
		case err == nil && s.ahead == 0:
			if n.grant(s) {
				return nil
			}
			n.prove() // the lease ran out
			err = a.pause(retry, nil)
		case err == nil:
			if stuck := a.client.reaper.stuck(a.lock.path + "/" + s.predecessor); stuck != nil {
				a.trouble.Store(&stuck)
			}
			var alone bool
			if alone, err = a.waitBehind(n, s); alone && n.grant(s) {
				return nil
			}
		case classify(err) == permanent || errors.Is(err, errGone) ||
			errors.Is(err, ErrSequenceExhausted) || a.ctx.Err() != nil:
			return err
		default:
			err = a.pause(retry, err)
		}
		if err == nil {
			if s, err = a.list(n); err == nil {
				retry.Reset()
				a.trouble.Store(nil)
			}
		}
	}
}

// grant makes a node at the head of the queue a held one, with s as its last known
// standing. It reports false if session, lease or node are gone.
func (n *Node) grant(s standing) bool {
	if !n.session.hold(n) {
		return false
	}
	switch {
	case n.worn(): // there may be others outside the queue: one turn, and out of their way
		n.contest(0)
	case s.behind > 0:
		n.contest(n.lock.client.now())
	}
	return true
}

// enter verifies a fresh node and lists its queue at the same time: one round trip.
func (a *attempt) enter(n *Node) (standing, error) {
	type sight struct {
		stat *zk.Stat
		err  error
	}
	sights := make(chan sight, len(n.znodes))
	for i := range n.znodes {
		if !a.client.spawn(func() {
			stat, err := a.verify(n, &n.znodes[i])
			sights <- sight{stat, err}
		}) {
			return standing{}, ErrClosed
		}
	}
	s, err := a.list(n)
	for range n.znodes { // all of them, or one would look on after the end of the node
		sight := <-sights
		if sight.err == nil {
			sight.err = a.bind(n, sight.stat)
		}
		if sight.err != nil {
			s, err = standing{}, sight.err
		}
	}
	return s, err
}

// verify learns a znode's token and owner, and watches for its deletion.
func (a *attempt) verify(n *Node, z *znode) (*zk.Stat, error) {
	for retry := newBackoff(); ; {
		stat, err := n.look(z)
		switch classify(err) {
		case done:
			return stat, nil
		case missing:
			return nil, errGone
		case permanent:
			return nil, fmt.Errorf("read %s: %w", z.path, lacking("READ", z.path, err))
		}
		if err := a.pause(retry, err); err != nil {
			return nil, err
		}
	}
}

// bind makes sure whose the node is. A create that was queued while the connection was
// down may have been executed under a newer session than the one it was asked for, so
// the owner decides, not the time of the call.
func (a *attempt) bind(n *Node, stat *zk.Stat) error {
	s := n.session
	if stat.EphemeralOwner != s.id {
		if s = a.client.link.session(); s == nil || stat.EphemeralOwner != s.id {
			return errGone
		}
		n.session = s
	}
	n.token = stat.Czxid
	n.bound.Store(true)
	if s.enrol(n) != nil {
		return errGone
	}
	return nil
}

// list looks at the queue.
func (a *attempt) list(n *Node) (standing, error) {
	n.wake.Clear() // before the look: what comes later ends the wait
	if n.life.Err() != nil {
		return standing{}, errGone
	}
	asked := a.client.now()
	children, _, err := a.client.conn.Children(a.lock.path)
	switch classify(err) {
	case done:
	case missing:
		return standing{}, errGone
	default:
		return standing{}, fmt.Errorf("list %s: %w", a.lock.path, lacking("READ", a.lock.path, err))
	}
	s, err := stand(children, n.names()...)
	if errors.Is(err, errNotQueued) {
		return standing{}, errGone
	}
	n.heard.Store(int64(asked))
	if s.foreign > 0 {
		a.reportForeign(s.foreign)
	}
	return s, err
}

// reportForeign says, once per attempt and not more often than the logger wants, that
// there are children that are no lock nodes.
func (a *attempt) reportForeign(count int) {
	if !a.reported {
		a.reported = true
		a.client.options.logger.Info("zklock: children that are no lock nodes are ignored",
			"path", a.lock.path, "count", count)
	}
}
