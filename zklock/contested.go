package zklock

import (
	"time"
)

// ContestedFor returns for how long another contender has been known to wait behind a
// held node, 0 if none is known: since the look that showed one was sent, or since the
// grant if one was behind the node by then. On a path whose sequence numbers are half used
// up, others may wait outside the queue, and every node counts as contested for ever.
//
// The first call begins to look, with one read and a watch on the children of the path;
// holders who never ask cause no traffic. A contender that leaves again does not take
// the answer back.
func (n *Node) ContestedFor() time.Duration {
	if !n.isContested() {
		n.Contested()
		return 0
	}
	return max(n.lock.client.now()-n.contestedSince, 1)
}

func (n *Node) isContested() bool {
	select {
	case <-n.contested:
		return true
	default:
		return false
	}
}

// Contested returns a channel that is closed once another contender is known to wait
// behind a held node. Like [Node.ContestedFor] it begins to look when it is first
// called.
func (n *Node) Contested() <-chan struct{} {
	if !n.observed.Load() && !n.observed.Swap(true) && !n.isContested() {
		n.lock.client.spawn(n.observe)
	}
	return n.contested
}

// contest notes that somebody waits behind the node, since then on the client's clock. It is
// called once: at the grant, or else by the one goroutine that looks.
func (n *Node) contest(since time.Duration) {
	n.contestedSince = since
	close(n.contested)
}

// observe looks for contenders behind the node until there is one or the node is given up.
func (n *Node) observe() {
	c := n.lock.client
	w := &watcher{notify: n.wake.Set}
	defer c.events.ignore(n.lock.path, w)
	recheck := time.NewTimer(recheckAfter(n.session.negotiated()))
	defer recheck.Stop()
	for retry := newBackoff(); !n.spent.Load(); {
		n.wake.Clear() // before the look: what comes later ends the wait
		asked := c.now()
		children, err := c.watchQueue(n.lock.path, w)
		if s, _ := stand(children, n.names()...); s.behind > 0 {
			n.contest(asked)
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

// watchQueue lists the queue at path and sees to it that w hears of its next change.
func (c *Client) watchQueue(path string, w *watcher) ([]string, error) {
	armed := c.events.listen(path, w)
	queue := c.link.ask(listing{path, !armed})[0]
	switch {
	case armed:
	case queue.err != nil:
		c.events.failed(path, w)
	default:
		c.events.begun(path, w)
	}
	return queue.children, queue.err
}
