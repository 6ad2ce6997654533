package redislock

import (
	"context"
	"errors"
	"time"

	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/internal/second"
)

// queueUp queues and waits for the turn. An old contender, which has been given up, goes with
// the request that appends the first new one.
func (l *claim) queueUp(ctx context.Context, old *contender, w *second.Wait) (*contender, error) {
	for ; ; old = nil {
		c, err := l.enter(ctx)
		if err != nil {
			old.releaseIfAny()
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

// enter makes a contender that is yet to queue.
func (l *claim) enter(ctx context.Context) (*contender, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := l.store.reaper.Room(ctx); err != nil {
		return nil, l.store.explain(err)
	}
	// Callers who come and go while Redis does not answer would otherwise pile up requests, which
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
	if err := c.enqueue(ctx, old); err != nil {
		old.releaseIfAny()
		return err
	}
	if c.hold() {
		return nil
	}
	return c.wait(ctx, w)
}

// enqueue appends the contender to the queue. The same request is sent until it is answered: a later
// one finds what an earlier one has done.
func (c *contender) enqueue(ctx context.Context, old *contender) error {
	predecessor := ""
	if old != nil {
		predecessor = old.id
	}
	for pace := retry.New(); ; {
		// The answer is waited for whoever has lost interest: else nobody would know whether it queues.
		err := c.ask(c.claim.store.ctx, "enqueue", c.claim.describe(), predecessor)
		if err == nil {
			old.finishIfAny()
			return nil
		}
		switch classify(err) {
		case permanent:
			return err
		case uncertain:
			c.unclear.Store(true)
		}
		if err := c.pause(ctx, pace.NextBackOff()); err != nil {
			return err
		}
	}
}

// ask sends an operation about the contender once, and takes the answer.
func (c *contender) ask(ctx context.Context, op string, more ...string) error {
	sent := c.claim.store.now()
	words, err := c.claim.do(ctx, op, c.id, more...)
	if err != nil {
		if begun(err) {
			c.unclear.Store(true)
		}
		return err
	}
	if len(words) == 2 && words[0] == "busy" {
		if words[1] == "0" {
			return second.ErrLocked
		}
		return c.claim.store.Quarantine().Locked()
	}
	a, err := parse(words)
	if err != nil {
		return err
	}
	c.apply(a, sent)
	return nil
}

// try takes the lock if nobody is in the way.
func (l *claim) try(ctx context.Context) (*contender, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if problem := l.store.outage(); problem != nil {
		return nil, problem
	}
	x, err := l.store.await(ctx, false)
	if err != nil {
		return nil, err
	}
	c := l.newContender(x)
	if err = x.Enrol(c); err == nil {
		if err = c.ask(l.store.ctx, "try", l.describe()); classify(err) == uncertain && !errors.Is(err, second.ErrLocked) {
			c.unclear.Store(true)
		}
	}
	if err == nil && !c.hold() {
		err = errors.New("the lease has run out and is not renewed yet")
	}
	if err != nil {
		c.discard()
		return nil, err
	}
	return c, nil
}

// pause waits before a request is sent again, and for Redis to be back.
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

// wait waits until the contender has the lock, and holds it. errGone says that it has to start
// again.
func (c *contender) wait(ctx context.Context, w *second.Wait) error {
	w.Stands(c.standing)
	defer w.Forget()
	for pace := shortest; ; pace = min(2*pace, longest) {
		c.wake.Clear()
		if c.life.Err() != nil {
			return errGone
		}
		if c.hold() { // else it is not its turn, or the lease has run out and may be renewed
			return nil
		}
		if err := c.awaitNews(ctx, pace); err != nil {
			return c.claim.store.explain(err)
		}
	}
}

// shortest and longest are the times between two looks at a lock of another library, or at a key
// that is left free.
const shortest, longest = 10 * time.Millisecond, 100 * time.Millisecond

// awaitNews waits until the contender is told something. The first one in a queue who cannot have the
// lock yet is told by nobody, and asks.
func (c *contender) awaitNews(ctx context.Context, pace time.Duration) error {
	look := c.newest().wait
	switch {
	case look == 0:
		return c.wake.Wait(ctx)
	case look <= longest:
		look = min(look, pace)
	}
	timer := time.NewTimer(look)
	defer timer.Stop()
	select {
	case <-c.wake.C():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
	}
	if c.ask(ctx, "look") != nil {
		return c.claim.store.up.Wait(ctx)
	}
	return nil
}
