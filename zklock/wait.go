package zklock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"
)

// waitBehind watches the predecessor and waits for any reason to look again. It reports
// whether the predecessor went and nobody else was ahead: then the head is ours without
// another look.
func (a *attempt) waitBehind(n *Node, s standing) (alone bool, err error) {
	path := a.lock.path + "/" + s.predecessor
	w, q := &watcher{notify: n.wake.Set}, &watcher{notify: n.wake.Set}
	defer a.client.events.ignore(path, w)
	defer a.client.events.ignore(a.lock.path, q)
	err = a.watch(path, w)
	if errors.Is(err, zk.ErrNoAuth) {
		err = n.watchUnreadable(q, s.predecessor)
	}
	switch classify(err) {
	case done:
	case missing: // gone between list and watch
		return false, nil
	default:
		return false, fmt.Errorf("watch %s: %w", path, err)
	}

	// Watches can be lost: setting them again after a reconnect may fail unseen.
	ctx, cancel := context.WithTimeout(a.ctx, recheckAfter(n.session.negotiated()))
	defer cancel()
	n.wake.Wait(ctx)
	if a.ctx.Err() != nil {
		return false, a.explain(context.Cause(a.ctx))
	}
	return w.deleted.Load() && s.alone() && n.life.Err() == nil, nil
}

// watch sees to it that w hears of the end of a predecessor. A get leaves no watch
// behind if the node has just gone, which exists would, for ever.
func (a *attempt) watch(path string, w *watcher) error {
	if a.client.events.listen(path, w) {
		return nil
	}
	_, _, events, err := a.client.conn.GetW(path)
	if err != nil {
		a.client.events.failed(path, w)
		return err
	}
	a.client.link.watched(events)
	return nil
}

// watchUnreadable lets q hear of the end of a foreign node that we may not read. A server
// sends no event about it (CVE-2024-23944), nor does it say that it exists, from 3.8.4
// and 3.9.2 on (ZOOKEEPER-2590); but the queue can be watched, since it could be listed.
func (n *Node) watchUnreadable(q *watcher, name string) error {
	children, err := n.lock.client.watchQueue(n.lock.path, q)
	if err == nil && !slices.Contains(children, name) {
		err = zk.ErrNoNode
	}
	return err
}

// recheckAfter spreads the checks of many processes over time.
func recheckAfter(timeout time.Duration) time.Duration {
	return timeout/2 + rand.N(timeout)
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
