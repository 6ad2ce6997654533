package pglock

import (
	"cmp"
	"context"
	"time"

	"github.com/tierlock/tierlock/internal/contention"
	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/internal/second"
)

// Shared is true from before the request of Share is sent, since that may be executed at any time.
func (c *contender) Shared() bool { return c.shared.Load() }

// Share marks the contender as one that reads from now on. Its token, and with it its place, stays.
// Nobody in front can write again, so that whoever has seen it, be it late, is right to go on.
//
// A request that was sent may be executed as long as the contender is there. So from then on Share
// waits until it knows, also if ctx is done, for as long as the grant lasts: an error would say that
// this process may write. A server that refuses the request is an error.
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
		c.claim.store.options.logger.Warn("pglock: a writer that reads now cannot let readers of other processes in; they wait for its release",
			"path", c.claim.path, "err", err)
	}
	return c.claim.failure("share", err)
}

// awaitReader waits until the contender right behind reads.
func (c *contender) awaitReader(ctx context.Context) error {
	s := c.claim.store
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.tenure, func() { cancel(context.Cause(c.tenure)) })()
	for {
		c.wake.Clear()
		if err := cmp.Or(c.Err(), context.Cause(ctx)); err != nil {
			return s.explain(err)
		}
		q := c.join()
		if q == nil {
			return cmp.Or(c.Err(), second.ErrClosed)
		}
		if ok, err := q.readerBehind(c); ok || err != nil {
			return err
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
	if err := c.share(); err != nil {
		return err
	}
	c.opened = true
	if q := c.join(); q != nil {
		q.contestAnew(c)
		c.claim.store.queues.read(c.claim.path)
		c.claim.store.nudge.poke()
	}
	return nil
}

// share sends the same request until it is answered.
func (c *contender) share() error {
	s := c.claim.store
	unclear := false
	for pace := retry.New(); ; {
		var present bool
		err := s.call(c.tenure, func(ctx context.Context) error {
			return s.requests.QueryRow(ctx, "SELECT tierlock.share($1, $2)", c.claim.path, c.id).Scan(&present)
		})
		switch {
		case err == nil && present:
			return nil
		case err == nil:
			return c.missing()
		case classify(err) == permanent && !unclear:
			c.shared.Store(false)
			return err
		}
		unclear = unclear || classify(err) == uncertain
		if err := c.pause(c.tenure, pace.NextBackOff()); err != nil {
			return cmp.Or(c.Err(), err)
		}
	}
}

// missing says that the contender is not there, which is a loss unless it was given up.
func (c *contender) missing() error {
	if !c.spent.Load() {
		c.gone.Store(true)
		c.lose(deleted(c.id))
	}
	return c.Err()
}

// readerBehind reports whether the contender right behind one reads, or why that cannot be told.
func (q *queue) readerBehind(c *contender) (reads bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.standLocked(c)
	return s.own.Shared || s.next.Shared, q.refused
}

// contestAnew gives a contender another signal, for those who do not read.
func (q *queue) contestAnew(c *contender) {
	q.mu.Lock()
	defer q.mu.Unlock()
	c.contested.Store(contention.New(func() { c.join() }))
	q.tellLocked(c, time.Now())
}
