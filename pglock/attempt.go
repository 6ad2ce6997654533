package pglock

import (
	"context"
	"errors"
	"time"

	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/internal/second"
)

// queueUp queues and waits for the turn. An old contender, which has been given up, goes with the
// request that adds the first new one.
func (l *claim) queueUp(ctx context.Context, old *contender, w *second.Wait) (*contender, error) {
	for ; ; old = nil {
		c, err := l.enter(ctx)
		if err != nil {
			old.deleteIfAny()
			return nil, err
		}
		if err = c.acquire(ctx, old, w); err == nil {
			return c, nil
		}
		c.discard()
		if !errors.Is(err, errGone) {
			return nil, err
		}
	}
}

// enter makes a contender that is yet to be put into the queue.
func (l *claim) enter(ctx context.Context) (*contender, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := l.store.reaper.Room(ctx); err != nil {
		return nil, l.store.explain(err)
	}
	// Callers who come and go while the server does not answer would otherwise pile up requests, which
	// are all executed when it does.
	if err := l.store.up.Wait(ctx); err != nil {
		return nil, l.store.explain(err)
	}
	for {
		x, err := l.store.await(ctx, true)
		if err != nil {
			return nil, err
		}
		if c := l.newContender(x); x.Enrol(c) == nil {
			return c, nil
		}
	}
}

func (c *contender) acquire(ctx context.Context, old *contender, w *second.Wait) error {
	first, err := c.enqueue(ctx, old)
	if err != nil {
		old.deleteIfAny()
		return err
	}
	if first && c.holdUnfollowed() {
		return nil
	}
	return c.wait(ctx, w)
}

// enqueue puts the contender behind all others, and reports whether it waits for none of them. The same
// request is sent until it is answered: a later one finds what an earlier one has done.
func (c *contender) enqueue(ctx context.Context, old *contender) (first bool, err error) {
	for pace := retry.New(); ; {
		first, err := c.request(old, false)
		if err == nil || errors.Is(err, errGone) || classify(err) == permanent {
			return first, err
		}
		if old != nil && classify(err) == uncertain {
			old.doomed = true
		}
		if err := c.pause(ctx, pace.NextBackOff()); err != nil {
			return false, err
		}
	}
}

// request sends the request of enqueue or of a try once. Its answer is waited for whoever has lost
// interest meanwhile: else nobody would know whether there is a contender.
func (c *contender) request(old *contender, try bool) (first bool, err error) {
	s := c.claim.store
	var alive bool
	var removed *bool
	var number *int64
	var quiet int64
	sent := time.Now()
	err = s.call(s.ctx, func(ctx context.Context) error {
		return s.requests.QueryRow(ctx, "SELECT alive, coalesce(first, false), number, removed, quiet FROM tierlock.enter($1, $2, $3, $4, $5, $6, $7)",
			c.claim.path, c.id, c.session.id, c.claim.mode == second.Reading, c.claim.linger.Milliseconds(), old.idIfAny(), try).
			Scan(&alive, &first, &number, &removed, &quiet)
	})
	switch {
	case classify(err) == uncertain:
		c.session.doubtful.Store(true)
		c.unclear = true
		return false, err
	case err != nil:
		return false, err
	case !alive:
		s.expire(c.session)
		return false, errGone
	}
	s.hush(quiet, sent)
	old.finishIfAny(removed != nil && *removed)
	if number == nil {
		return false, s.Quarantine().Locked()
	}
	c.token = *number
	c.entered.Store(int64(s.now()))
	return first, nil
}

// try takes the lock if nobody is in the way.
func (l *claim) try(ctx context.Context) (*contender, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if problem := l.store.Err(); problem != nil {
		return nil, problem
	}
	x, err := l.store.await(ctx, false)
	if err != nil {
		return nil, err
	}
	c := l.newContender(x)
	if err = x.Enrol(c); err == nil {
		_, err = c.request(nil, true)
	}
	switch q := l.store.Quarantine(); {
	case err != nil || c.holdUnfollowed():
	case q != nil:
		err = q.Locked()
	default:
		err = errors.New("the lease has run out and is not renewed yet")
	}
	if err != nil {
		c.discard()
		return nil, err
	}
	return c, nil
}

// pause waits before the request is sent again, and for the server to be back.
func (c *contender) pause(ctx context.Context, d time.Duration) error {
	s := c.claim.store
	err := retry.Pause(ctx, d)
	if err == nil {
		err = s.up.Wait(ctx)
	}
	if err != nil {
		return s.explain(err)
	}
	return nil
}

// wait waits until the contender is first, and holds the lock. errGone says that it has to
// start again.
func (c *contender) wait(ctx context.Context, w *second.Wait) error {
	q := c.join()
	if q == nil {
		return second.ErrClosed
	}
	w.Stands(func() second.Standing {
		stands := q.standing(c)
		stands.Quarantine = c.claim.store.Quarantine()
		return stands
	})
	defer w.Forget()
	for {
		c.wake.Clear()
		first, err := q.first(c)
		switch {
		case c.life.Err() != nil:
			return errGone
		case err != nil:
			return err
		case first && q.hold(c): // else the lease has run out, and may be renewed
			return nil
		}
		if err := c.wake.Wait(ctx); err != nil {
			return c.claim.store.explain(err)
		}
	}
}
