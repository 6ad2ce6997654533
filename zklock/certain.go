package zklock

import "time"

// leased reports whether a lease says until when the lock is ours. Without one, as over a
// connection made elsewhere, only the server can tell that it still is.
func (n *Node) leased() bool { return n.lock.client.link.Leased() }

// confirmWithin bounds the wait for the server's word.
const confirmWithin = time.Second

// confirm reports whether a held lock is certain to be ours. If there is no lease, and no
// recent word of the server, it asks, with a write that changes nothing, and takes no answer
// within a second for a no.
func (n *Node) confirm() bool {
	c := n.lock.client
	answer := make(chan bool, 1)
	if !c.link.Spawn(func() { answer <- n.certain() }) {
		return false
	}
	bound := time.NewTimer(confirmWithin)
	defer bound.Stop()
	select {
	case certain := <-answer:
		return certain
	case <-bound.C:
		return false
	}
}

// heardLasts is for how long an answer vouches for a session: less than the timeout of any.
const heardLasts = 250 * time.Millisecond

// certain asks the server if it has to, and the library about a close that is under way.
func (n *Node) certain() bool {
	if n.leased() {
		return n.lossNow() == nil
	}
	l := n.lock.client.link
	if asked := l.Now(); asked-time.Duration(n.heard.Load()) > min(heardLasts, n.session.Negotiated()/3) {
		zs, unpin := n.pin()
		defer unpin()
		if zs == nil {
			return false
		}
		if _, err := l.Transact(zs.checks()...); err != nil {
			return false
		}
		n.heard.Store(int64(asked))
	}
	return !l.Over()
}
