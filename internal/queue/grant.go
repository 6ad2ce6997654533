package queue

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/tierlock/tierlock/internal/clock"
	"github.com/tierlock/tierlock/internal/second"
)

// Token returns the fencing token, which is the token of the contender's place in the queue.
func (c *Contender) Token() int64 { return c.token.Load() }

// Context returns a context that ends when the lock is lost.
func (c *Contender) Context() context.Context { return c.life }

// Tenure returns a context that ends when the lock is lost or given up.
func (c *Contender) Tenure() context.Context { return c.tenure }

// Contended returns a signal, which is raised when another process waits because of this contender.
func (c *Contender) Contended() *second.Contention { return c.contended.Load() }

// RevokeRequested returns a channel that is closed when a process has asked for the lock.
func (c *Contender) RevokeRequested() <-chan struct{} {
	c.follow()
	return c.revoked.C()
}

// Idle reports whether no guarded write may still take effect.
func (c *Contender) Idle() bool { return c.pending.Load() == 0 }

// Unsettle makes Idle return false from now on.
func (c *Contender) Unsettle() { c.pending.Add(1) }

// Leased returns true, because the lease shows whether the lock is held.
func (c *Contender) Leased() bool { return true }

// Confirm checks only the lease, and asks the store nothing.
func (c *Contender) Confirm() bool { return c.Err() == nil }

// ValidUntil returns the time of day at which the lease ends.
func (c *Contender) ValidUntil() time.Time {
	now := time.Now() // read before Remaining: a pause in between then makes the result too early, never too late
	left := c.session.Remaining()
	if c.Err() != nil {
		return time.Time{}
	}
	return now.Add(left)
}

// Store returns the store in which the contender queues, and nil if there is no contender.
func (c *Contender) Store() Store {
	if c == nil {
		return nil
	}
	return c.claim.tier.store
}

// Err returns why this process does not have the lock any more. It returns nil if it has the lock.
func (c *Contender) Err() error { return c.ErrAt(c.claim.tier.Now()) }

// ErrAt is Err for a caller that has just read the clock.
func (c *Contender) ErrAt(now time.Duration) error {
	loss := c.lossAt(now)
	if c.givenUp.Load() { // replaces a loss: after the contender was given up, the end of its lease is no loss
		return second.ErrReleased
	}
	return loss
}

func (c *Contender) lossAt(now time.Duration) error {
	if !c.IsLost() {
		if c.session.ValidAt(now) {
			return nil
		}
		c.session.Lapse()
	}
	return context.Cause(c.life) // nil if a renewal came between ValidAt and Lapse
}

// Release gives the contender up. It does not wait while the store cannot be reached.
func (c *Contender) Release() error {
	if loss := c.abandon(); errors.Is(loss, second.ErrReleased) {
		return loss
	}
	return c.AwaitRelease()
}

// AwaitRelease waits until the contender is removed from the store, but no longer than [second.Settings.ReleaseWithin].
func (c *Contender) AwaitRelease() error {
	select {
	case <-c.released.C():
		if errors.Is(c.fate, second.ErrLost) {
			c.end(c.fate)
		}
		if c.fate != nil {
			return c.claim.failure("release", c.fate)
		}
		return nil
	case <-time.After(c.claim.tier.config.ReleaseWithin(c.session.ttl)): // nil, unless the lock was lost before
		return context.Cause(c.life)
	}
}

// Shared reports whether the contender is a reader, or Share is about to send its command. That command may be executed at any time.
func (c *Contender) Shared() bool { return c.shared.Load() }

// Share makes the contender a reader in the store. It keeps its place and its token. The downgrade cannot be undone, so a waiter that sees
// it late may still proceed.
//
// Once its command is sent, Share waits for the outcome even if ctx ends, for as long as the grant lasts. An error would mean that this
// process may still write, while the command may be executed at any time. If the store refuses the command, Share returns an error.
func (c *Contender) Share(ctx context.Context) error {
	if c.claim.mode == second.Reading {
		return c.Err()
	}
	err := c.awaitReader(ctx)
	if err == nil {
		err = c.open()
	}
	if err == nil {
		return nil
	}
	if ctx.Err() == nil && c.Err() == nil {
		c.claim.tier.log.Alone(c.claim.path, err)
	}
	return c.claim.failure("share", err)
}

// awaitReader waits until the contender right behind is a reader.
func (c *Contender) awaitReader(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.tenure, func() { cancel(context.Cause(c.tenure)) })()
	c.attend()
	for {
		c.wake.Clear()
		if err := cmp.Or(c.Err(), context.Cause(ctx)); err != nil {
			return c.claim.tier.explain(err)
		}
		if v := c.newest(); v.Reads || v.Reader || v.Err != nil {
			return v.Err
		}
		c.awaitNews(ctx, longest, nil) // the next round checks whether ctx has ended
	}
}

// open sends the command that makes the contender a reader, so that the readers behind it get the lock.
func (c *Contender) open() error {
	c.opening.Lock()
	defer c.opening.Unlock()
	if c.opened {
		return nil
	}
	c.shared.Store(true)
	unknown := false
	_, err := c.claim.tier.repeat(c.tenure, func() Answer {
		a := c.sendFor(c.tenure, c.command(Share))
		if unknown = unknown || a.Outcome == Unknown || a.Begun; unknown && a.Outcome == Denied {
			a.Outcome = Unknown // an earlier try may have made the contender a reader, but Denied would mean that it is still a writer
		} else if a.Outcome == Denied {
			c.shared.Store(false)
		}
		return a
	})
	if err = cmp.Or(c.Err(), err); err != nil {
		return err
	}
	c.opened = true
	c.mu.Lock()
	defer c.mu.Unlock()
	c.contended.Store(second.NewContention(c.attend)) // a new signal: readers may have raised the old one, but now only writers wait
	c.contestLocked(time.Now())
	return nil
}

// StopWatchdog is for tests. It stops the watchdog of the session; see [lease.Lease.StopWatchdog].
func (c *Contender) StopWatchdog() { c.session.StopWatchdog() }

// Clock is for tests. It returns the clock of the lease.
func (c *Contender) Clock() *clock.Clock { return c.claim.tier.clock }
