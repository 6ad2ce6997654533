package tier

import (
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// A lingerer sees to the grant of a cohort while nobody wants it. Its fields are guarded
// by the cohort's mutex.
type lingerer struct {
	since time.Time
	spent chan struct{} // closed when the grant is given up; nil if it has never lingered
}

// stop is called when the grant is given up.
func (l *lingerer) stop() {
	if l.spent != nil {
		close(l.spent)
		l.spent = nil
	}
}

// lingerLocked keeps a grant that nobody waits for.
func (c *cohort) lingerLocked(grant second.Grant) {
	c.state, c.grant = lingering, grant
	c.lingerer.since = time.Now()
	if c.lingerer.spent == nil {
		spent := make(chan struct{})
		c.lingerer.spent = spent
		c.registry.spawn(c, func() { c.watchLingering(grant, spent) }) // unless closed: then the grant goes with the session
	}
}

// lingeringLocked returns the lingering grant, nil if there is none.
func (c *cohort) lingeringLocked() second.Grant {
	if c.state != lingering {
		return nil
	}
	return c.grant
}

// resumeLocked takes a lingering grant back into use. It returns nil if there is none,
// or if it is lost; then it lets it go.
func (c *cohort) resumeLocked() *ownership {
	grant := c.lingeringLocked()
	if grant == nil {
		return nil
	}
	if grant.Err() != nil {
		c.passOnLocked(grant)
		return nil
	}
	return c.ownLocked(new(ownership), grant)
}

// watchLingering runs from the first time that a grant lingers until it never will
// again. It lets the grant go when nobody has come for long enough, when another process
// wants the lock, and when the lock is lost.
func (c *cohort) watchLingering(grant second.Grant, spent <-chan struct{}) {
	timer := time.NewTimer(c.registry.options.linger)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			left := c.endLingering(grant, c.registry.options.linger)
			if left <= 0 {
				return
			}
			timer.Reset(left)
		case <-grant.Contested().C(): // from now on a release does not leave it lingering
			c.endLingering(grant, 0)
			return
		case <-grant.Context().Done():
			c.endLingering(grant, 0)
			return
		case <-spent:
			return
		}
	}
}

// endLingering lets the grant go if it has lingered for at least d. It returns how long
// that still takes: all of d while the grant is in use.
func (c *cohort) endLingering(grant second.Grant, d time.Duration) (left time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lingeringLocked() != grant {
		return d
	}
	if left := d - time.Since(c.lingerer.since); left > 0 {
		return left
	}
	c.passOnLocked(grant)
	return 0
}
