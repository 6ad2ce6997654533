package tier

import (
	"time"

	"github.com/tierlock/tierlock/zklock"
)

// A lingerer sees to the node of a cohort while nobody wants it. Its fields are guarded
// by the cohort's mutex.
type lingerer struct {
	since   time.Time
	watched *zklock.Node // the node that has a goroutine to end its lingering
}

// lingerLocked keeps a node that nobody waits for.
func (c *cohort) lingerLocked(node *zklock.Node) {
	c.state, c.node = lingering, node
	c.lingerer.since = time.Now()
	if c.lingerer.watched != node {
		c.lingerer.watched = node
		c.registry.spawn(c, func() { c.watchLingering(node) }) // unless closed: then the node goes with the session
	}
}

// lingeringLocked returns the lingering node, nil if there is none.
func (c *cohort) lingeringLocked() *zklock.Node {
	if c.state != lingering {
		return nil
	}
	return c.node
}

// resumeLocked takes a lingering node back into use. It returns nil if there is none,
// or if it is lost; then it lets it go.
func (c *cohort) resumeLocked() *ownership {
	node := c.lingeringLocked()
	if node == nil {
		return nil
	}
	if node.Err() != nil {
		c.passOnLocked(node)
		return nil
	}
	return c.ownLocked(new(ownership), node)
}

// watchLingering runs from the first time that a node lingers until it never will
// again. It lets the node go when nobody has come for long enough, when another process
// wants the lock, and when the lock is lost.
func (c *cohort) watchLingering(node *zklock.Node) {
	timer := time.NewTimer(c.registry.options.linger)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			left := c.endLingering(node, c.registry.options.linger)
			if left <= 0 {
				return
			}
			timer.Reset(left)
		case <-node.Contested(): // from now on a release does not leave it lingering
			c.endLingering(node, 0)
			return
		case <-node.Lost():
			c.endLingering(node, 0)
			return
		case <-node.Released():
			return
		}
	}
}

// endLingering lets the node go if it has lingered for at least d. It returns how long
// that still takes: all of d while the node is in use.
func (c *cohort) endLingering(node *zklock.Node, d time.Duration) (left time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lingeringLocked() != node {
		return d
	}
	if left := d - time.Since(c.lingerer.since); left > 0 {
		return left
	}
	c.passOnLocked(node)
	return 0
}
