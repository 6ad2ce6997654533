package pglock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tierlock/tierlock/internal/contention"
	"github.com/tierlock/tierlock/internal/second"
)

// Token is positive and grows with every later owner of any lock in the database, for as long as that
// keeps its data.
func (c *contender) Token() int64 { return c.token }

func (c *contender) Context() context.Context { return c.life }

func (c *contender) Contested() *contention.Signal { return c.contested.Load() }

// Revoked has the contender follow its queue, where it is told.
func (c *contender) Revoked() <-chan struct{} {
	c.join()
	return c.revoked.C()
}

func (c *contender) Idle() bool { return c.pending.Load() == 0 }

func (c *contender) Leased() bool { return true }

func (c *contender) Confirm() bool { return c.Err() == nil }

func (c *contender) ValidUntil() time.Time {
	now := time.Now() // before the look: who is stopped in between returns too early a time
	left, _ := c.session.Remaining()
	if c.Err() != nil {
		return time.Time{}
	}
	return now.Add(left)
}

func (c *contender) Err() error { return c.ErrAt(c.claim.store.now()) }

func (c *contender) ErrAt(now time.Duration) error {
	loss := c.lossAt(now)
	if c.spent.Load() { // asked last: the end of one that was given up is no loss
		return second.ErrReleased
	}
	return loss
}

// lossNow returns why the lock is lost, nil if it is not.
func (c *contender) lossNow() error { return c.lossAt(c.claim.store.now()) }

func (c *contender) lossAt(now time.Duration) error {
	if c.life.Err() == nil {
		if c.session.ValidAt(now) {
			return nil
		}
		c.session.Lapse()
	}
	return context.Cause(c.life) // nil if the lease has just been renewed
}

// Release deletes the contender. It does not wait for a server that cannot be reached.
func (c *contender) Release() error {
	if c.spent.Swap(true) {
		return second.ErrReleased
	}
	loss := c.giveUp()
	c.startDelete(loss)
	return c.AwaitRelease()
}

// giveUp comes before the contender is deleted, and returns the loss, which is none from then on unless
// the answer to the delete says so. The audit leaves that to whoever is at it: if its delete were the
// first, the other one would find nothing.
func (c *contender) giveUp() (loss error) {
	c.lossNow() // reads the clock
	c.quit(second.ErrReleased)
	c.session.leaving.Store(c.id, nil)
	c.session.Leave(c)
	return context.Cause(c.life)
}

func (c *contender) AwaitRelease() error {
	bound := time.NewTimer(c.claim.store.options.ttl / 3)
	defer bound.Stop()
	select {
	case <-c.released:
		if errors.Is(c.fate, second.ErrLost) {
			c.end(c.fate)
		}
		if c.fate != nil {
			return c.claim.failure("release", c.fate)
		}
		return nil
	case <-bound.C: // the lease tells whether it was ours
		return context.Cause(c.life)
	}
}

// startDelete deletes the contender, without waiting for the answer. A loss is what became of the lock
// before, nil if it was held to the end.
func (c *contender) startDelete(loss error) {
	s := c.claim.store
	c.leave()
	switch {
	case c.gone.Load(): // by another hand, and nobody has said so yet
		c.finish(cmp.Or(loss, deleted(c.id)))
	case c.session.Over(): // it goes with the session
		c.finish(loss)
	case s.Err() != nil:
		c.leaveToReaper(loss)
	default:
		if !s.spawn(func() { c.delete(loss) }) {
			c.finish(loss)
		}
	}
}

// delete deletes the contender, or leaves it to the reaper.
func (c *contender) delete(loss error) {
	present, err := c.claim.store.delete(c.claim.path, c.id)
	switch classify(err) {
	case done:
		c.finishDeleted(present, loss)
	case permanent:
		c.leaveToReaper(cmp.Or(loss, fmt.Errorf("delete contender %s: %w; it stays in the queue until the session is over, and even this process queues behind it", c.id, err)))
	default:
		c.leaveToReaper(loss)
	}
}

// finishDeleted follows a delete that has found the contender, or not.
func (c *contender) finishDeleted(present bool, loss error) {
	if !present && loss == nil && !c.doomed && !c.session.Over() {
		loss = deleted(c.id)
	}
	c.gone.Store(true)
	c.finish(loss)
}

func (c *contender) leaveToReaper(fate error) {
	c.reap()
	c.finish(fate)
}

// finish says that nobody has to wait for the end of the contender any more.
func (c *contender) finish(fate error) {
	c.leave()
	c.finished.Do(func() {
		c.reportLoss(fate)
		c.fate = fate
		c.session.leaving.Delete(c.id)
		close(c.released)
	})
}

// The old contender of a requeue, if there is one, has been given up and was not lost then.

func (c *contender) deleteIfAny() {
	if c != nil {
		c.startDelete(nil)
	}
}

func (c *contender) finishIfAny(present bool) {
	if c != nil {
		c.finishDeleted(present, nil)
	}
}
