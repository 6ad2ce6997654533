package etcdlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tierlock/tierlock/internal/contention"
	"github.com/tierlock/tierlock/internal/second"
)

// Token is the create revision of the key. It is positive and grows with every later owner of
// any lock of the cluster, for as long as that keeps its data.
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
	if c.spent.Load() { // asked last: the end of a key that was given up is no loss
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

// Release deletes the key. It does not wait for an etcd that cannot be reached.
func (c *contender) Release() error {
	if c.spent.Swap(true) {
		return second.ErrReleased
	}
	loss := c.giveUp()
	c.startDelete(loss)
	return c.AwaitRelease()
}

// giveUp comes before the key goes, and returns the loss, which is none from then on unless the answer to
// the delete says so. The audit leaves that to whoever is at it: if its delete were the first, the other
// one would find nothing.
func (c *contender) giveUp() (loss error) {
	c.lossNow() // reads the clock
	c.quit(second.ErrReleased)
	c.session.leaving.Store(c.key, nil)
	c.session.Leave(c)
	return context.Cause(c.life)
}

func (c *contender) AwaitRelease() error {
	bound := time.NewTimer(c.session.ttl / 3)
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

// startDelete deletes the key, without waiting for the answer. A loss is what became of the lock
// before, nil if it was held to the end.
func (c *contender) startDelete(loss error) {
	s := c.claim.store
	c.leave()
	switch {
	case c.gone.Load(): // by another hand, and nobody has said so yet
		c.finish(cmp.Or(loss, deleted(c.key)))
	case c.session.Over(): // it has gone with the lease, or goes with the store
		c.finish(loss)
	case s.Err() != nil:
		c.leaveToReaper(loss)
	default:
		if !s.spawn(func() { c.deleteKey(loss) }) {
			c.finish(loss)
		}
	}
}

// deleteKey deletes the key, or leaves it to the reaper.
func (c *contender) deleteKey(loss error) {
	number, err := c.claim.store.delete(c.key, c.token)
	switch classify(err) {
	case done:
		c.finishDeleted(number, loss)
	case permanent:
		c.leaveToReaper(cmp.Or(loss, fmt.Errorf("delete %s: %w; the key stays in the queue until the etcd lease ends, and even this process queues behind it", c.key, err)))
	default:
		c.leaveToReaper(loss)
	}
}

// finishDeleted follows a delete of so many keys, one or none.
func (c *contender) finishDeleted(number int64, loss error) {
	if number == 0 && loss == nil && !c.doomed && !c.session.Over() {
		loss = deleted(c.key)
	}
	c.gone.Store(true)
	c.finishAs(loss, true)
}

func (c *contender) leaveToReaper(fate error) {
	c.reap()
	c.finish(fate)
}

// finish says that nobody has to wait for the end of the key any more.
func (c *contender) finish(fate error) { c.finishAs(fate, false) }

// finishAs also says whether the key is known not to be there, by an answer.
func (c *contender) finishAs(fate error, answered bool) {
	c.leave()
	c.finished.Do(func() {
		c.reportLoss(fate)
		c.fate = fate
		c.session.leaving.Delete(c.key)
		if answered {
			c.session.names.push(c.name)
		}
		close(c.released)
	})
}

// The old contender of a requeue, if there is one, has been given up and was not lost then.

func (c *contender) deleteIfAny() {
	if c != nil {
		c.startDelete(nil)
	}
}

func (c *contender) finishIfAny(deleted int64) {
	if c != nil {
		c.finishDeleted(deleted, nil)
	}
}
