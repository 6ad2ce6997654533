package tier

import (
	"context"
	"errors"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// What is particular to owners that read: several of a process are inside at the same time, under
// one grant.

// admitsLocked reports whether grant is enough for m: to write, one that others may share is not.
func (c *cohort) admitsLocked(grant second.Grant, m *Mutex) bool {
	return !c.key.rw || m.reads() || !c.sharer.begun && !grant.Shared()
}

// openLocked reports whether one more may join those who read: as long as that is fair to others. If
// not, they come to an end, and with them the grant. Who came before the grant counts for a round.
func (c *cohort) openLocked(now time.Duration, arrival int64) bool {
	if c.state != held || !c.reading() || c.grant.ErrAt(now) != nil || c.toldLocked(c.grant) {
		return false
	}
	o := c.policy
	return o.rounds && arrival <= c.round || c.grant.Contested().For() < max(c.budgetLocked(), 1)
}

// joinLocked makes one who comes by way of m an owner beside those who read, unless somebody waits
// for them to end. It returns nil if that cannot be.
func (c *cohort) joinLocked(m *Mutex, now time.Duration) *ownership {
	c.downgradeLocked(c.owner)
	if !m.reads() || !c.gate.empty() || !c.openLocked(now, c.gate.arrivals+1) {
		return nil
	}
	return c.ownLocked(new(ownership), m, c.grant, now, join)
}

// admitReadersLocked lets those at the head of the gate who read join those inside who do.
func (c *cohort) admitReadersLocked(now time.Duration) {
	for !c.gate.empty() && c.gate.first.errand.reads() && c.openLocked(now, c.gate.first.arrival) {
		c.admitFirstLocked(c.grant, now, join)
	}
}

// reading reports whether owners read. Who holds the mutex and sees that it is so may rely on it, as
// the last one does not leave without.
func (c *cohort) reading() bool { return c.readers.Load() > 0 }

// slipOut ends an ownership that reads unless it is the last one, and returns why the lock was not
// ours up to then. It takes no mutex: many who were let in together leave together. The grant stays
// while it counts.
func (c *cohort) slipOut(own *ownership) (loss error, left bool) {
	if !own.reads.Load() {
		return nil, false
	}
	for asked := false; ; {
		n := c.readers.Load()
		if n == 1 {
			return nil, false
		}
		if !asked {
			loss, asked = own.standing(), true
		}
		if c.tally.slipOut(&c.readers, n, c.registry.now()) {
			return loss, true
		}
	}
}

// standing returns why the lock is not ours. Without a lease only the store can tell.
func (o *ownership) standing() error {
	err := o.grant.Err()
	if err == nil && !o.grant.Leased() && !o.grant.Confirm() {
		err = errors.New("not known whether the lock was ours to the end")
	}
	return err
}

// left is what a release returns that left the lock to others who read.
func (c *cohort) left(loss error) error {
	if loss == nil {
		return nil
	}
	return c.noteLoss(c.failure("release", loss))
}

// downgrade follows the release of the last hold to write of an ownership that has others, to read.
// While a guarded write is not answered nobody is let in, who would see it come.
func (c *cohort) downgrade(own *ownership) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.downgradeLocked(own)
}

// downgradeLocked is also called when somebody comes, if the owner was not let be a reader yet.
func (c *cohort) downgradeLocked(own *ownership) {
	if own == nil || own != c.owner || own.holds.Load() >= writeHold || !own.grant.Idle() {
		return
	}
	c.owner = nil
	c.readers.Store(1)
	own.reads.Store(true)
	c.shareLaterLocked(own.grant)
	c.admitReadersLocked(c.registry.now())
}

// A sharer sees to it that readers of other processes are not kept out for long by a grant to write
// under which only readers are left. Its fields are guarded by the cohort's mutex.
type sharer struct {
	quit  context.CancelFunc // nil if nobody watches
	begun bool               // the grant is being shared, or was: it is not to write any more
}

// stop is called when the grant is given up.
func (s *sharer) stop() {
	if s.quit != nil {
		s.quit()
	}
	*s = sharer{}
}

// shareLaterLocked is called when somebody begins to read under grant.
func (c *cohort) shareLaterLocked(grant second.Grant) {
	if c.sharer.quit != nil || grant.Shared() {
		return
	}
	ctx, quit := context.WithCancel(grant.Context())
	c.sharer.quit = quit
	if !c.registry.spawn(c, func() {
		defer quit()
		c.watchSharing(ctx, grant)
	}) {
		quit() // closed: nobody gets in any more
	}
}

// watchSharing has grant shared once another process has waited for the hand-off budget. Those who
// wait in this process will not be let in any more, so as a rule the grant soon goes: then they are
// given as much time again.
func (c *cohort) watchSharing(ctx context.Context, grant second.Grant) {
	select {
	case <-grant.Contested().C():
	case <-ctx.Done():
		return
	}
	for extended := false; ; {
		c.mu.Lock()
		budget := c.policy.handOff
		left := budget - grant.Contested().For()
		reading, alone := c.reading(), c.gate.empty()
		switch {
		case ctx.Err() != nil: // given up
			c.mu.Unlock()
			return
		case left > 0:
		case !reading: // whoever reads next begins again
			c.sharer.quit = nil
			c.mu.Unlock()
			return
		case alone || extended:
			c.sharer.begun = true
			c.mu.Unlock()
			c.share(ctx, grant)
			return
		default:
			left, extended = budget, true
		}
		c.mu.Unlock()
		if !pause(ctx, left) {
			return
		}
	}
}

// share lets readers of other processes in beside those of this one.
func (c *cohort) share(ctx context.Context, grant second.Grant) {
	err := grant.Share(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && ctx.Err() == nil && c.state == held {
		c.admitReadersLocked(c.registry.now())
		c.expectHandOffLocked()
	}
}

// pause reports whether ctx has not ended by then.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
