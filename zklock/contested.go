package zklock

import (
	"time"

	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/zklock/internal/link"
)

// observe looks for contenders behind the node until there is one or the node is given up:
// with one read and a watch on the children of the path. A contender that leaves again does
// not take the answer back. On a path whose sequence numbers are half used up, others may
// wait outside the queue, and every node counts as contested from the beginning of time.
func (n *Node) observe() {
	c := n.lock.client
	w := &link.Watcher{Notify: n.wake.Set}
	defer c.link.Events.Ignore(n.lock.path, w)
	recheck := time.NewTimer(n.session.Recheck())
	defer recheck.Stop()
	for pace := retry.New(); !n.spent.Load(); {
		n.wake.Clear() // before the look: what comes later ends the wait
		asked := time.Now()
		children, err := c.link.WatchQueue(n.lock.path, w)
		if s, _ := stand(children, n.znodes.names()...); s.behind > 0 {
			n.contested.Raise(asked)
			return
		}
		if err != nil {
			recheck.Reset(pace.NextBackOff())
		} else { // watches can be lost
			recheck.Reset(n.session.Recheck())
			pace.Reset()
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
