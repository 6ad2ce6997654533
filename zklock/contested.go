package zklock

import (
	"time"
)

// ContestedFor returns for how long another contender has been known to wait behind a
// held node, 0 if none is known.
//
// The first call begins to look, with one read and a watch on the children of the path;
// holders who never ask cause no traffic. A contender that leaves again does not take
// the answer back.
func (n *Node) ContestedFor() time.Duration {
	since := n.contestedSince.Load()
	if since == 0 {
		n.Contested()
		return 0
	}
	return max(n.lock.client.now()-time.Duration(since), 1)
}

// Contested returns a channel that is closed once another contender is known to wait
// behind a held node. Like [Node.ContestedFor] it begins to look when it is first
// called.
func (n *Node) Contested() <-chan struct{} {
	if !n.observed.Load() && !n.observed.Swap(true) && n.contestedSince.Load() == 0 {
		n.lock.client.spawn(n.observe)
	}
	return n.contested
}

// contest notes that somebody waits behind the node.
func (n *Node) contest() {
	if n.contestedSince.CompareAndSwap(0, int64(max(n.lock.client.now(), 1))) {
		close(n.contested)
	}
}

// observe looks for contenders behind the node until there is one or the node goes.
func (n *Node) observe() {
	c := n.lock.client
	w := &watcher{notify: n.wake.Set}
	defer c.events.ignore(n.lock.path, w)
	recheck := time.NewTimer(recheckAfter(n.session.negotiated()))
	defer recheck.Stop()
	for retry := newBackoff(); ; {
		n.wake.Clear() // before the look: what comes later ends the wait
		children, err := n.watchQueue(w)
		if s, _ := stand(children, n.names()...); s.behind > 0 {
			n.contest()
			return
		}
		if err != nil {
			recheck.Reset(retry.NextBackOff())
		} else { // watches can be lost
			recheck.Reset(recheckAfter(n.session.negotiated()))
			retry.Reset()
		}
		select {
		case <-n.wake.C():
		case <-recheck.C:
		case <-n.life.Done():
			return
		case <-n.released:
			return
		}
	}
}

// watchQueue lists the queue and sees to it that w hears of its next change.
func (n *Node) watchQueue(w *watcher) ([]string, error) {
	c := n.lock.client
	if c.events.listen(n.lock.path, w) {
		children, _, err := c.conn.Children(n.lock.path)
		return children, err
	}
	children, _, events, err := c.conn.ChildrenW(n.lock.path)
	if err != nil {
		c.events.failed(n.lock.path, w)
		return nil, err
	}
	c.events.begun(n.lock.path, w)
	c.link.watched(events)
	return children, nil
}
