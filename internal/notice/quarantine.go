package notice

import (
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// Quarantine says that for so much longer the store grants nothing to anybody, as it has answered to what was sent
// at a time. The answer may have been on its way for long: that it ends later than was known is certain only if it
// does so counted from when that was sent.
func (c *Connection) Quarantine(left time.Duration, sent time.Time, reason string) {
	if left <= 0 {
		return
	}
	q := &second.QuarantineError{Until: time.Now().Add(left), Reason: reason}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.quarantine.Load(); known == nil || q.Until.After(known.Until) {
		c.quarantine.Store(q)
	}
	if sent.Add(left).After(c.warned.Add(time.Second)) {
		c.warned, c.news = q.Until, true
		c.changed.Set()
	}
}

// Quarantined returns the quarantine, nil if there is none.
func (c *Connection) Quarantined() *second.QuarantineError {
	if q := c.quarantine.Load(); q != nil && time.Now().Before(q.Until) {
		return q
	}
	return nil
}

// warnOfQuarantine warns once of each, and again of one that has become longer.
func (c *Connection) warnOfQuarantine() {
	c.mu.Lock()
	news := c.news
	c.news = false
	c.mu.Unlock()
	if q := c.quarantine.Load(); news {
		c.config.Logger.Warn(c.config.Package+": "+q.Error(), "until", q.Until)
	}
}
