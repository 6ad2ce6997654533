package advisory

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tierlock/tierlock/internal/contention"
	"github.com/tierlock/tierlock/internal/second"
)

// Token is from a sequence, drawn once the lock was granted.
func (c *Contender) Token() int64 { return c.token }

func (c *Contender) Context() context.Context { return c.life }

func (c *Contender) Contested() *contention.Signal { return c.contested.Load() }

func (c *Contender) Revoked() <-chan struct{} { return c.revoked.C() }

func (c *Contender) Idle() bool { return c.pending.Load() == 0 }

func (c *Contender) Leased() bool { return true }

func (c *Contender) Confirm() bool { return c.Err() == nil }

func (c *Contender) Shared() bool { return c.shared.Load() }

func (c *Contender) ValidUntil() time.Time {
	now := time.Now() // before the look: who is stopped in between returns too early a time
	left, _ := c.session.Remaining()
	if c.Err() != nil {
		return time.Time{}
	}
	return now.Add(left)
}

func (c *Contender) Err() error { return c.ErrAt(c.claim.tier.Now()) }

func (c *Contender) ErrAt(now time.Duration) error {
	loss := c.lossAt(now)
	if c.spent.Load() { // asked last: the end of a session that was given up is no loss
		return second.ErrReleased
	}
	return loss
}

// lossNow returns why the lock is lost, nil if it is not.
func (c *Contender) lossNow() error { return c.lossAt(c.claim.tier.Now()) }

func (c *Contender) lossAt(now time.Duration) error {
	if c.life.Err() == nil {
		if c.session.ValidAt(now) {
			return nil
		}
		c.session.Lapse()
	}
	return context.Cause(c.life) // nil if the lease has just been renewed
}

// Release unlocks. It does not wait for a server that cannot be reached.
func (c *Contender) Release() error {
	if c.spent.Swap(true) {
		return second.ErrReleased
	}
	loss := c.giveUp()
	c.startRelease(loss)
	return c.AwaitRelease()
}

func (c *Contender) AwaitRelease() error {
	bound := time.NewTimer(c.claim.tier.config.TTL / 3)
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

// startRelease unlocks, without waiting for the answer. A loss is what became of the lock before, nil
// if it was held to the end: then the session is for others again.
func (c *Contender) startRelease(loss error) {
	x := c.session
	switch {
	case loss != nil:
		x.broken(loss)
		c.finish(loss)
	case !c.claim.tier.spawn(func() { c.unlock() }):
		c.finish(nil) // it goes with the connection
	}
}

func (c *Contender) unlock() {
	x := c.session
	if !x.begin() {
		c.finish(nil)
		return
	}
	rows, err := x.askPatiently(inMode("leave", c.shared.Load()), strconv.FormatInt(c.claim.key, 10), "tierlock")
	x.done()
	var ended *pgconn.PgError
	switch {
	case errors.As(err, &ended) && !refused(err): // before it came to that
		c.finish(second.Lost(second.BySession, "%w", err))
	case err != nil:
		x.broken(err)
		c.finish(nil)
	case string(rows[0][0]) != "t":
		x.broken(errUnseen)
		c.finish(second.Lost(second.ByDeletion, "%w", cmp.Or(err, errUnseen)))
	default:
		c.claim.tier.keep(x) // first: whoever has waited for the release may come again
		c.finish(nil)
	}
}

// StopWatchdog is for tests: see [lease.Lease.StopWatchdog].
func (c *Contender) StopWatchdog() { c.session.StopWatchdog() }
