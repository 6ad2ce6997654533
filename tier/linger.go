package tier

import (
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// A lingerer sees to the grant of a cohort while nobody wants it. Its fields are guarded
// by the cohort's mutex.
type lingerer struct {
	limit time.Duration
	spent chan struct{} // closed when its watch is over; nil if nobody watches
}

// stop is called when the grant is given up.
func (l *lingerer) stop() {
	if l.spent != nil {
		close(l.spent)
		l.spent = nil
	}
}

// lingerLocked keeps a grant that nobody waits for, from now on.
func (c *cohort) lingerLocked(grant second.Grant, now time.Duration) {
	c.state, c.grant, c.since = lingering, grant, now
	l := &c.lingerer
	if limit := c.policy.linger; l.limit != limit { // another mutex of the path may have another one
		l.stop()
		l.limit = limit
	}
	if l.spent == nil {
		limit, spent := l.limit, make(chan struct{})
		l.spent = spent
		c.registry.spawn(c, func() { c.watchLingering(grant, limit, spent) }) // unless closed: then the grant goes with the session
	}
}

// lingeringLocked returns the lingering grant, nil if there is none.
func (c *cohort) lingeringLocked() second.Grant {
	if c.state != lingering {
		return nil
	}
	return c.grant
}

// resumeLocked takes a lingering grant back into use by way of m. It returns nil if there is
// none, or none that would do; and if it is lost, when it lets it go.
func (c *cohort) resumeLocked(m *Mutex) *ownership {
	grant := c.lingeringLocked()
	if grant == nil {
		return nil
	}
	now := c.registry.now()
	if grant.ErrAt(now) != nil {
		c.passOnLocked(grant, resumption)
		return nil
	}
	if !c.admitsLocked(grant, m) {
		return nil
	}
	return c.ownLocked(new(ownership), m, grant, now, resumption)
}

// watchLingering runs from the first time that a grant lingers until it never will
// again. It lets the grant go when nobody has come for long enough, when another process
// wants the lock or has asked for it, and when the lock is lost.
func (c *cohort) watchLingering(grant second.Grant, limit time.Duration, spent <-chan struct{}) {
	revoked := c.revokedOf(grant)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			left := c.endLingering(grant, spent, false)
			if left <= 0 {
				return
			}
			timer.Reset(left)
		case <-grant.Contested().C(): // from now on a release does not leave it lingering, unless it is shared
			c.endLingering(grant, spent, true)
			return
		case <-revoked: // nor from now on
			c.endLingering(grant, spent, true)
			return
		case <-grant.Context().Done():
			c.endLingering(grant, spent, true)
			return
		case <-spent:
			return
		}
	}
}

// endLingering lets the grant go if it has lingered for long enough, or if that has to be now. It
// returns how long that still takes: as long as it may linger while the grant is in use. If it has to be
// now, the watch is over in any case, and a grant that lingers later needs another one.
func (c *cohort) endLingering(grant second.Grant, spent <-chan struct{}, now bool) (left time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := &c.lingerer
	limit := l.limit
	if c.lingeringLocked() != grant {
		if now && l.spent == spent {
			l.spent = nil
		}
		return limit
	}
	if left := limit - (c.registry.now() - c.since); left > 0 && !now {
		return left
	}
	c.passOnLocked(grant, resumption)
	return 0
}
