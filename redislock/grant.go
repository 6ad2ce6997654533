package redislock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlock/tierlock/internal/contention"
	"github.com/tierlock/tierlock/internal/second"
)

// Token is the time of the server at which the contender queued, in microseconds, or one more than
// the one before.
func (c *contender) Token() int64 { return c.token.Load() }

func (c *contender) Context() context.Context { return c.life }

func (c *contender) Contested() *contention.Signal { return c.contested.Load() }

func (c *contender) Revoked() <-chan struct{} { return c.revoked.C() }

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
	if c.spent.Load() { // asked last: the end of what was given up is no loss
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

// Release does not wait for a Redis that cannot be reached.
func (c *contender) Release() error {
	if c.spent.Swap(true) {
		return second.ErrReleased
	}
	loss := c.giveUp()
	c.startRelease(loss)
	return c.AwaitRelease()
}

// giveUp comes before the contender leaves the queue, and returns the loss, which is none from then on
// unless the answer to that says so.
func (c *contender) giveUp() (loss error) {
	c.lossNow() // reads the clock
	c.quit(second.ErrReleased)
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

// startRelease removes the contender from the queue, without waiting for the answer. A loss is what
// became of the lock before, nil if it was held to the end.
func (c *contender) startRelease(loss error) {
	s := c.claim.store
	switch {
	case c.gone.Load(): // by another hand, and nobody has said so yet
		c.finishAs(cmp.Or(loss, deleted(c.claim.path)), true)
	case s.Err() != nil:
		c.leaveToReaper(loss)
	default:
		if !s.spawn(func() { c.release(loss) }) {
			c.finishAs(loss, false)
		}
	}
}

// release removes the contender, or leaves it to the reaper.
func (c *contender) release(loss error) {
	removed, err := c.claim.release(c.id)
	switch classify(err) {
	case done:
		if !removed && loss == nil && c.once() && !c.session.Over() {
			loss = deleted(c.claim.path)
		}
		c.finishAs(loss, true)
	case permanent:
		c.leaveToReaper(cmp.Or(loss, fmt.Errorf("%w; it stays in the queue until its lease ends", err)))
	default:
		c.leaveToReaper(loss)
	}
}

// once reports whether one request to remove the contender was executed at most. A client for a
// cluster may have repeated it.
func (c *contender) once() bool {
	_, cluster := c.claim.store.client.(*redis.ClusterClient)
	return !cluster && !c.unclear.Load()
}

func (c *contender) leaveToReaper(fate error) {
	s := c.claim.store
	s.reaper.Add(remains{contender: c, until: s.now() + s.options.ttl})
	c.finishAs(fate, false)
}

// finishAs says that nobody has to wait for the end of the contender any more, and whether it is known
// to be gone.
func (c *contender) finishAs(fate error, gone bool) {
	c.finished.Do(func() {
		c.reportLoss(fate)
		c.fate = fate
		close(c.released)
	})
	if gone {
		c.claim.store.byID.Delete(c.id)
	}
}

// The old contender of a requeue, if there is one, has been given up and was not lost then.

func (c *contender) releaseIfAny() {
	if c != nil {
		c.unclear.Store(true) // the requeue may have been executed
		c.startRelease(nil)
	}
}

func (c *contender) finishIfAny() {
	if c != nil {
		c.finishAs(nil, true)
	}
}
