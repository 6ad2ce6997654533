package tier

import "github.com/tierlock/tierlock/internal/second"

// What becomes of a lock that is wanted elsewhere if its owner wants to know. Once the owner was told, the
// lock goes to nobody in this process: who gives way is not to find it among those it has given way to.

// A heed is what owners under a grant want to be told. It is guarded by the cohort's mutex.
type heed struct {
	contested bool            // that another process waits
	revoked   <-chan struct{} // that somebody has asked for the lock; nil unless they do
}

// contestedOf returns what tells that another process waits because of grant.
func (c *cohort) contestedOf(grant second.Grant) <-chan struct{} {
	c.mu.Lock()
	if c.hasLocked(grant) {
		c.heed.contested = true
	}
	c.mu.Unlock()
	return grant.Contested().C()
}

// revokedOf returns what tells that somebody has asked for grant.
func (c *cohort) revokedOf(grant second.Grant) <-chan struct{} {
	revoked := grant.Revoked()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hasLocked(grant) {
		c.heed.revoked = revoked
	}
	return revoked
}

func (c *cohort) hasLocked(grant second.Grant) bool {
	return (c.state == held || c.state == lingering) && c.grant == grant
}

// toldLocked reports whether somebody who wanted to know was told that grant is wanted elsewhere. It
// begins no looking.
func (c *cohort) toldLocked(grant second.Grant) bool {
	select {
	case <-c.heed.revoked: // never if nil
		return true
	default:
		return c.heed.contested && grant.Contested().Raised()
	}
}
