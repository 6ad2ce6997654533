package tier

import (
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// A decision says what becomes of the grant when its owner has released it.
type decision int

const (
	giveUp  decision = iota // delete it; waiters, if any, start anew
	requeue                 // give it up and queue again for the waiters, in one transaction
	handOn                  // keep it for the first waiter
	linger                  // keep it for a while, though nobody waits
)

// decideLocked is afterReleaseLocked for a grant with a lease. Without one, a grant is kept
// only if the store vouches for it: else nobody would know whether the lock was ours. That
// takes a call, without the mutex; the state is held meanwhile, so nobody gets in.
func (c *cohort) decideLocked(grant second.Grant, now time.Duration) decision {
	d := c.afterReleaseLocked(grant, now)
	if grant.Leased() || d != handOn && d != linger {
		return d
	}
	c.mu.Unlock()
	certain := grant.Confirm()
	c.mu.Lock()
	if !certain {
		return giveUp
	}
	return c.afterReleaseLocked(grant, c.registry.now())
}

// afterReleaseLocked is the rule of lock cohorting (Dice, Marathe, Shavit 2012): within
// a process the lock changes hands for nothing, so it stays there as long as that is
// fair. A grant is never kept without a valid lease, nor while the connection is down;
// nor while a guarded write of its last owner has not been answered, which could otherwise
// take effect under the next one; nor once somebody was told that it is wanted elsewhere.
func (c *cohort) afterReleaseLocked(grant second.Grant, now time.Duration) decision {
	waiters := !c.gate.empty()
	quiet := grant.Idle() // before the connection: its end answers a write that may be on its way
	switch {
	case grant.ErrAt(now) != nil || c.registry.second.Err() != nil:
		return giveUp
	case waiters && quiet && !c.toldLocked(grant) && c.admitsLocked(grant, c.gate.first.errand) && c.fairToHandOnLocked(grant):
		return handOn
	case waiters:
		return requeue
	case c.policy.linger > 0 && !c.toldLocked(grant) && !c.draining && quiet && grant.Contested().For() == 0:
		return linger
	}
	return giveUp
}

// fairToHandOnLocked: while no other process waits there is no limit; once one does,
// the limit is the hand-off budget. By rounds, whoever waited when the grant came has a
// turn in any case: as many for the process as if each queued by itself. A turn is
// its waiter's alone: who gives up takes it along, and who comes later has none.
func (c *cohort) fairToHandOnLocked(grant second.Grant) bool {
	o := c.policy
	return o.rounds && c.gate.first.arrival <= c.round || o.handOff > 0 && grant.Contested().For() < c.budgetLocked()
}

// budgetLocked is for how long others that wait leave the grant here. One that is shared has had its
// budget, while those waited who read; its signal is a new one, so from now on nobody has to wait.
func (c *cohort) budgetLocked() time.Duration {
	if c.sharer.begun {
		return 1
	}
	return c.policy.handOff
}

// expectHandOffLocked is called when there is a new owner, and when somebody begins to
// wait for one. If anybody waits, a hand-off may come. The budget runs from the look that
// shows another process, so the looking begins now; where nobody waits locally, nobody looks.
func (c *cohort) expectHandOffLocked() {
	if c.policy.handOff > 0 && !c.gate.empty() {
		c.grant.Contested().C()
	}
}
