package zklock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v4"
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

// try acquires the lock if it is free.
func (a *attempt) try() (*Node, error) {
	a.once = true
	if err := a.client.Err(); err != nil {
		return nil, err
	}
	children, _, err := a.client.conn.Children(a.lock.path)
	switch classify(err) {
	case done:
		for _, name := range children {
			if _, _, ok := parseName(name); ok {
				return nil, ErrLocked
			}
		}
	case missing:
	default:
		return nil, err
	}
	n, err := a.enqueue()
	if err != nil {
		return nil, err
	}
	s, err := a.enter(n)
	switch {
	case err == nil && s.ahead > 0:
		err = ErrLocked
	case err == nil && !n.grant(s), errors.Is(err, errGone):
		err = a.client.explain(zk.ErrSessionExpired)
	}
	if err != nil {
		n.discard()
		return nil, err
	}
	return n, nil
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
			err = a.pause(retry, nil) // the lease ran out: listing again renews it
		case err == nil:
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
	granted := n.session.hold(n)
	if granted && s.behind > 0 {
		n.contest()
	}
	return granted
}

// enter verifies a fresh node and lists its queue at the same time: one round trip.
func (a *attempt) enter(n *Node) (standing, error) {
	verified := make(chan error, 1)
	if !a.client.spawn(func() { verified <- a.verify(n) }) {
		return standing{}, ErrClosed
	}
	s, err := a.list(n)
	if verr := <-verified; verr != nil {
		return standing{}, verr
	}
	return s, err
}

// verify learns the node's token, makes sure whose it is, and watches for its deletion.
// A create that was queued while the connection was down may have been executed under a
// newer session than the one it was asked for, so the owner decides, not the time of
// the call.
func (a *attempt) verify(n *Node) error {
	for retry := newBackoff(); ; {
		stat, err := n.look()
		switch classify(err) {
		case done:
			return a.bind(n, stat)
		case missing:
			return errGone
		case permanent:
			return fmt.Errorf("read %s: %w", n.path, err)
		}
		if err := a.pause(retry, err); err != nil {
			return err
		}
	}
}

func (a *attempt) bind(n *Node, stat *zk.Stat) error {
	s := n.session
	if stat.EphemeralOwner != s.id {
		if s = a.client.link.session(); s == nil || stat.EphemeralOwner != s.id {
			return errGone
		}
		n.session = s
	}
	n.token = stat.Czxid
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
	children, _, err := a.client.conn.Children(a.lock.path)
	switch classify(err) {
	case done:
	case missing:
		return standing{}, errGone
	default:
		return standing{}, fmt.Errorf("list %s: %w", a.lock.path, err)
	}
	s, err := stand(children, baseOf(n.path))
	if errors.Is(err, errNotQueued) {
		return standing{}, errGone
	}
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

// waitBehind watches the predecessor and waits for any reason to look again. It reports
// whether the predecessor went and nobody else was ahead: then the head is ours without
// another look.
func (a *attempt) waitBehind(n *Node, s standing) (alone bool, err error) {
	path := a.lock.path + "/" + s.predecessor
	w := &watcher{notify: n.wake.Set}
	if !a.client.events.listen(path, w) {
		if err := a.watch(path); err != nil {
			a.client.events.failed(path, w)
			if classify(err) == missing { // gone between list and watch
				return false, nil
			}
			return false, fmt.Errorf("watch %s: %w", path, err)
		}
	}
	defer a.client.events.ignore(path, w)

	// Watches can be lost: setting them again after a reconnect may fail unseen.
	ctx, cancel := context.WithTimeout(a.ctx, recheckAfter(n.session.negotiated()))
	defer cancel()
	n.wake.Wait(ctx)
	if a.ctx.Err() != nil {
		return false, context.Cause(a.ctx)
	}
	return w.deleted.Load() && s.alone() && n.life.Err() == nil, nil
}

// watch asks for the deletion watch of a predecessor. A get leaves no watch behind if
// the node has just gone, which exists would, for ever.
func (a *attempt) watch(path string) error {
	_, _, events, err := a.client.conn.GetW(path)
	if errors.Is(err, zk.ErrNoAuth) {
		// No READ permission on a foreign node; exists asks for none.
		var exists bool
		exists, _, events, err = a.client.conn.ExistsW(path)
		if err == nil && !exists {
			err = zk.ErrNoNode
		}
	}
	if events != nil {
		a.client.link.watched(events)
	}
	return err
}

// recheckAfter spreads the checks of many processes over time.
func recheckAfter(timeout time.Duration) time.Duration {
	return timeout/2 + rand.N(timeout)
}

// discard removes a node that is not wanted, or lets the reaper do it.
func (n *Node) discard() {
	n.spent.Store(true)
	n.session.leave(n)
	if n.life.Err() != nil || n.lock.client.Err() != nil {
		n.leaveToReaper(nil)
		return
	}
	n.deleteNow()
}

func newBackoff() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(10*time.Millisecond),
		backoff.WithMaxInterval(time.Second),
		backoff.WithMaxElapsedTime(0)) // the context decides; the default gives up after 15 minutes
}

// pause waits before another try, after err, and for the connection to be back. A try
// that is made once only ends with err.
func (a *attempt) pause(retry *backoff.ExponentialBackOff, err error) error {
	if a.once {
		return errors.Join(err, a.client.Err())
	}
	if err != nil {
		a.trouble.Store(&err)
	}
	if cause := pause(a.ctx, retry.NextBackOff()); cause != nil {
		return a.explain(cause)
	}
	_, cause := a.await()
	return cause
}

// await waits for a session, unless the attempt waits for nothing.
func (a *attempt) await() (*session, error) {
	if !a.once {
		return a.client.await(a.ctx)
	}
	s := a.client.link.session()
	if err := a.client.Err(); err != nil || s == nil {
		return nil, errors.Join(err, zk.ErrNoServer)
	}
	return s, nil
}
