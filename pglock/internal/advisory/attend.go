package advisory

import (
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

const (
	soon    = 20 * time.Millisecond // after the grant a hold is no longer a short one
	nearest = 2 * time.Millisecond  // between two looks
)

// lookSoon has the session of a holder look who waits, and from then on ever more rarely: whoever is
// expected may still be on the way.
func (c *Contender) lookSoon() {
	c.mu.Lock()
	if c.later != nil { // else it is not held yet
		c.pause = nearest
	}
	c.mu.Unlock()
	c.session.hurry(time.Now())
	c.claim.tier.spawn(c.attendOnce)
}

func (c *Contender) attendOnce() {
	c.mu.Lock()
	begun := c.attended || c.later == nil
	c.attended = c.attended || c.later != nil
	c.mu.Unlock()
	if !begun {
		c.claim.tier.spawn(c.attend)
	}
}

// attend looks after the session of a holder: it listens for the end of the connection, and has
// the server answer often enough for the lease.
func (c *Contender) attend() {
	x := c.session
	for !c.over() {
		if !x.due() {
			if err := x.listen(); err != nil {
				if !c.over() {
					x.broken(err)
				}
				return
			}
			continue
		}
		if !x.begin() {
			return
		}
		err := c.look()
		x.done()
		if err != nil && !refused(err) {
			return
		}
	}
}

// look asks who waits. Whoever calls it has the turn.
func (c *Contender) look() error {
	if c.over() {
		return nil
	}
	asked := time.Now()
	rows, err := c.session.askPatiently("look", array(c.claim.key))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pause = min(4*c.pause, c.claim.tier.beat())
	if c.sharing {
		c.pause = min(c.pause, c.claim.tier.config.TTL/50)
	}
	c.session.schedule(asked.Add(c.pause))
	if err != nil {
		return err
	}
	c.behind = c.behind[:0]
	for _, p := range places(rows) {
		if !p.granted {
			c.behind = append(c.behind, p)
		}
	}
	c.raiseLocked()
	c.news.Set()
	return nil
}

// raiseLocked tells that somebody waits, if so: behind a reader, one that does not read.
func (c *Contender) raiseLocked() {
	signal := c.contested.Load()
	if signal.Raised() {
		return
	}
	for _, p := range c.behind {
		if !p.reads || !c.shared.Load() {
			signal.Raise(time.Now()) // the look may have been sent before anybody came
			return
		}
	}
}

// standing is where a waiter stands, as the ear last saw it.
func (t *Tier) standing(c *Contender) second.Standing {
	t.mu.Lock()
	defer t.mu.Unlock()
	queue := t.views[c.claim.key]
	i := indexOf(queue, c.session.pid)
	if i < 1 {
		return second.Standing{}
	}
	return second.Standing{Ahead: i, Nearest: queue[i-1].describe()}
}
