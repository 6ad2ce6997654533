package zklock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/zklock/internal/link"
)

// acquire runs the life of a node up to the grant.
//
//	enqueue: create and list, look up what an unanswered create left
//	climb:   watch the two right ahead and the node itself, wait, list …
//
// It begins anew, with a new node, when the node is lost on the way.
func (a *attempt) acquire() (*Node, error) {
	return a.queue((*attempt).enqueue)
}

// requeue is acquire with the first create and the delete of old in one transaction.
func (a *attempt) requeue(old *Node) (*Node, error) {
	replaced := false
	return a.queue(func(a *attempt) (arrival, error) {
		if replaced {
			return a.enqueue()
		}
		replaced = true
		return a.replace(old)
	})
}

func (a *attempt) queue(enqueue func(*attempt) (arrival, error)) (*Node, error) {
	for pace := retry.New(); ; {
		n, err := enqueue(a)
		if err != nil {
			return nil, err
		}
		err = a.climb(n)
		if err == nil {
			return n.Node, nil
		}
		n.discard()
		if !errors.Is(err, errGone) {
			return nil, err
		}
		if err := a.pause(pace, err); err != nil {
			return nil, err
		}
	}
}

// climb waits until the node is at the head of the queue, and holds it.
func (a *attempt) climb(n arrival) error {
	if a.ctx.Err() != nil {
		return context.Cause(a.ctx)
	}
	ahead := &ahead{attempt: a, node: n.Node}
	defer ahead.leave()
	s, err := a.enter(n)
	for pace := retry.New(); ; {
		switch {
		case err == nil && s.ahead == 0:
			if n.grant(s) {
				return nil
			}
			n.prove() // the lease ran out
			err = a.pause(pace, nil)
		case err == nil:
			var head bool
			if head, err = ahead.wait(s); head && n.grant(s) {
				return nil
			}
		case classify(err) == permanent || errors.Is(err, errGone) ||
			errors.Is(err, ErrSequenceExhausted) || a.ctx.Err() != nil:
			return err
		default:
			err = a.pause(pace, err)
		}
		if err == nil {
			if s, err = a.list(n.Node); err == nil {
				pace.Reset()
				a.trouble.Store(nil)
			}
		}
	}
}

// grant makes a node at the head of the queue a held one, with s as its last known
// standing. It reports false if session, lease or node are gone.
func (n *Node) grant(s standing) bool {
	if !n.session.Hold(member{n}) {
		return false
	}
	n.loss.Held()
	n.beside = s.ahead + s.behind
	n.unattend = n.lock.client.link.Attend()
	n.watchLater()
	switch {
	case n.worn(): // there may be others outside the queue: one turn, and out of their way
		n.contested.Raise(time.Time{})
	case s.behind > 0:
		n.contested.Raise(time.Now())
	}
	return true
}

// enter finds the place of a fresh node. If its queue was listed in the flight of its create,
// the answer to that says whose it is.
func (a *attempt) enter(n arrival) (standing, error) {
	if n.listed == nil {
		return a.list(n.Node)
	}
	if err := n.bind(n.session, n.token); err != nil {
		return standing{}, err
	}
	return a.stand(n.Node, *n.listed)
}

// list looks at the queue, and at the node itself as long as it is not known whose that is.
func (a *attempt) list(n *Node) (standing, error) {
	n.wake.Clear() // before the look: what comes later ends the wait
	if n.life.Err() != nil {
		return standing{}, errGone
	}
	asked := a.client.link.Now()
	requests := []link.Request{link.Listing{Path: a.lock.path}}
	if !n.bound.Load() {
		requests = append(requests, n.readings(n.znodes)...)
	}
	answers := a.client.link.Read(requests...)
	for i, seen := range answers[1:] {
		if err := a.verify(n, n.znodes[i], seen); err != nil {
			return standing{}, err
		}
	}
	return a.stand(n, listed{answers[0], asked})
}

// verify takes what a look at one of the znodes says of its owner and token. A create that
// was looked up, or queued while the connection was down, may have been executed under a
// newer session than the one it was asked for, so the owner decides, not the time of the call.
func (a *attempt) verify(n *Node, z *znode, seen link.Answer) error {
	if err := z.unseen(seen.Err); err != nil {
		return err
	}
	z.watched = true
	s := n.session
	if seen.Stat.EphemeralOwner != s.ID {
		if s = a.client.link.Session(); s == nil || seen.Stat.EphemeralOwner != s.ID {
			return errGone
		}
	}
	return n.bind(s, seen.Stat.Czxid)
}

// bind makes sure whose the node is.
func (n *Node) bind(s *link.Session, token int64) error {
	n.session, n.token = s, token
	n.bound.Store(true)
	if s.Enrol(member{n}) != nil {
		return errGone
	}
	return nil
}

// stand finds the place of the node in a list of the queue.
func (a *attempt) stand(n *Node, l listed) (standing, error) {
	switch classify(l.Err) {
	case done:
	case missing:
		return standing{}, errGone
	default:
		return standing{}, fmt.Errorf("list %s: %w", a.lock.path, lacking("READ", a.lock.path, l.Err))
	}
	s, err := stand(l.Children, n.znodes.names()...)
	if errors.Is(err, errNotQueued) {
		return standing{}, errGone
	}
	n.heard.Store(int64(l.asked))
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
