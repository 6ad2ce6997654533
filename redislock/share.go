package redislock

import (
	"cmp"
	"context"

	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/internal/second"
)

// Shared is true from before the request of Share is sent, since that may be executed at any time.
func (c *contender) Shared() bool { return c.shared.Load() }

// Share has Redis note that the contender reads from now on. Place and token stay. It never writes
// again, so that whoever has seen that, be it late, is right to go on.
//
// A request that was sent may be executed at any time. So from then on Share waits until it knows,
// also if ctx is done, for as long as the grant lasts: an error would say that this process may write.
// A server that refuses it is an error.
func (c *contender) Share(ctx context.Context) error {
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
		c.claim.store.options.logger.Warn("redislock: a writer that reads now cannot let readers of other processes in; they wait for its release",
			"path", c.claim.path, "err", err)
	}
	return c.claim.failure("share", err)
}

// awaitReader waits until the contender right behind reads.
func (c *contender) awaitReader(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.tenure, func() { cancel(context.Cause(c.tenure)) })()
	for {
		c.wake.Clear()
		if err := cmp.Or(c.Err(), context.Cause(ctx)); err != nil {
			return c.claim.store.explain(err)
		}
		if said := c.newest(); said.reads || said.reader {
			return nil
		}
		c.wake.Wait(ctx) // whose end is seen above
	}
}

// open lets readers in.
func (c *contender) open() error {
	c.opening.Lock()
	defer c.opening.Unlock()
	if c.opened {
		return nil
	}
	c.shared.Store(true)
	unclear := false
	for pace := retry.New(); ; {
		err := c.ask(c.claim.store.ctx, "share")
		if err == nil {
			break
		}
		switch o := classify(err); {
		case o == permanent && !unclear:
			c.shared.Store(false)
			return err
		case o == uncertain:
			unclear = true
		}
		if err := c.pause(c.tenure, pace.NextBackOff()); err != nil {
			return cmp.Or(c.Err(), err)
		}
	}
	if err := c.Err(); err != nil {
		return err
	}
	c.opened = true
	c.contestAnew()
	return nil
}

// contestAnew gives a contender another signal, for those who do not read.
func (c *contender) contestAnew() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.contested.Store(newSignal())
	c.contestLocked()
}
