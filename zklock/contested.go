package zklock

import (
	"time"

	"github.com/tierlock/tierlock/internal/contention"
	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/mutexbool"
	"github.com/tierlock/tierlock/zklock/internal/link"
)

// newContested returns the signal that another contender waits behind the node as it is, for which
// wake is to look again.
func (n *Node) newContested(wake *mutexbool.Bool) (s *contention.Signal) {
	l := n.lock.client.link
	s = contention.New(func() { l.Spawn(func() { n.observe(s, wake) }) })
	return s
}

// signal is whether another contender waits behind the node as it is now.
func (n *Node) signal() *contention.Signal {
	if r := n.reader(); r != nil {
		return r.contested
	}
	return n.contested
}

// observe looks for contenders behind the node until there is one or the node is given up:
// with one read and a watch on the children of the path. A contender that leaves again does
// not take the answer back. On a path whose sequence numbers are half used up, others may
// wait outside the queue, and every node counts as contested from the beginning of time.
func (n *Node) observe(signal *contention.Signal, wake *mutexbool.Bool) {
	c := n.lock.client
	w := &link.Watcher{Notify: wake.Set}
	defer c.link.Events.Ignore(n.lock.path, w)
	recheck := time.NewTimer(n.session.Recheck())
	defer recheck.Stop()
	for pace := retry.New(); !n.spent.Load() && n.signal() == signal; {
		wake.Clear() // before the look: what comes later ends the wait
		asked := time.Now()
		children, err := c.link.WatchQueue(n.lock.path, w)
		if s, _ := stand(children, n.mine().names()...); s.behind > 0 {
			signal.Raise(asked)
			return
		}
		if err != nil {
			recheck.Reset(pace.NextBackOff())
		} else { // watches can be lost
			recheck.Reset(n.session.Recheck())
			pace.Reset()
		}
		select {
		case <-wake.C():
		case <-recheck.C:
		case <-n.life.Done():
			return
		case <-n.released:
			return
		}
	}
}
