package zklock

import "time"

// leased reports whether a lease says until when the lock is ours. Without one, as over a
// connection made elsewhere, only the server can tell that it still is.
func (n *Node) leased() bool { return n.lock.client.link.leased() }

// confirmWithin bounds the wait for the server's word.
const confirmWithin = time.Second

// confirm reports whether a held lock is certain to be ours. If there is no lease, and no
// recent word of the server, it asks, with a write that changes nothing, and takes no answer
// within a second for a no.
func (n *Node) confirm() bool {
	c := n.lock.client
	answer := make(chan bool, 1)
	if !c.spawn(func() { answer <- c.link.confirm(n) }) {
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
