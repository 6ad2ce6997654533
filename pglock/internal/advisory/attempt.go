package advisory

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/internal/second"
)

// errGone says that a contender has lost its place in the queue and has to start again.
var errGone = errors.New("place in the queue lost")

// queueUp queues and waits for the turn, again if the connection breaks meanwhile.
func (l *claim) queueUp(ctx context.Context, w *second.Wait) (*Contender, error) {
	for pace := retry.New(); ; {
		c, err := l.enter(ctx, true)
		if err == nil {
			if err = c.acquire(ctx, w); err == nil {
				return c, nil
			}
		}
		switch {
		case ctx.Err() != nil:
			return nil, l.tier.explain(context.Cause(ctx))
		case l.tier.config.Permanent(err):
			return nil, err
		}
		if pausing := retry.Pause(ctx, pace.NextBackOff()); pausing != nil {
			return nil, fmt.Errorf("%w: %w", pausing, err)
		}
	}
}

// requeue has a session unlock and queue again; if it is lost over that, another one.
func (l *claim) requeue(ctx context.Context, old *Contender, w *second.Wait) (*Contender, error) {
	if c := l.newContender(old.session); c.session.Enrol(c) == nil {
		err := c.succeed(ctx, old, w)
		if err == nil {
			return c, nil
		}
		if ctx.Err() != nil || l.tier.config.Permanent(err) {
			return nil, l.tier.explain(err)
		}
	}
	old.finish(nil)
	return l.queueUp(ctx, w)
}

// enter makes a contender that is yet to queue.
func (l *claim) enter(ctx context.Context, patient bool) (*Contender, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := l.tier.await(ctx, patient); err != nil {
		return nil, err
	}
	x, err := l.tier.session(ctx)
	if err != nil {
		return nil, err
	}
	c := l.newContender(x)
	if err := x.Enrol(c); err != nil {
		return nil, errGone
	}
	return c, nil
}

// acquire takes the lock if it is free and nobody waits, and otherwise says that it waits and does so.
func (c *Contender) acquire(ctx context.Context, w *second.Wait) error {
	taken, err := c.tryOnce()
	switch {
	case err != nil:
		c.abandon(err)
		return err
	case taken:
		return c.settle(ctx, w)
	case ctx.Err() != nil:
		c.withdraw()
		return context.Cause(ctx)
	}
	return c.wait(ctx, w, call{"announce", []string{strconv.FormatInt(c.claim.key, 10), "tierlock 0" + c.name(false)}})
}

// tryOnce reports whether the lock is taken now.
func (c *Contender) tryOnce() (taken bool, err error) {
	if !c.session.begin() {
		return false, errGone
	}
	defer c.session.done()
	rows, err := c.session.ask(inMode("try", c.shared.Load()), strconv.FormatInt(c.claim.key, 10), c.name(false))
	if err != nil || len(rows) == 0 {
		return false, err
	}
	c.token, err = strconv.ParseInt(string(rows[0][0]), 10, 64)
	return true, err
}

// wait sends a statement, and with it the one that waits for the lock.
func (c *Contender) wait(ctx context.Context, w *second.Wait, before call) error {
	if !c.session.begin() {
		return errGone
	}
	err := c.waitInTurn(ctx, w, before, func() {})
	c.session.done()
	return c.waited(ctx, w, err)
}

// waited goes on behind a wait.
func (c *Contender) waited(ctx context.Context, w *second.Wait, err error) error {
	switch {
	case err == nil:
		return c.settle(ctx, w)
	case errors.Is(err, errCancelled):
		c.withdraw()
		return context.Cause(ctx)
	}
	c.abandon(err)
	return err
}

// succeed is wait for one that has the session, and the lock, of an old contender.
func (c *Contender) succeed(ctx context.Context, old *Contender, w *second.Wait) error {
	if !c.session.begin() {
		return errGone
	}
	before := call{inMode("leave", old.shared.Load()), []string{strconv.FormatInt(old.claim.key, 10), "tierlock 0" + c.name(false)}}
	err := c.waitInTurn(ctx, w, before, func() { old.finish(nil) })
	c.session.done()
	err = c.waited(ctx, w, err)
	old.finish(nil) // if its session is over, and it with that
	return err
}

// errCancelled says that the server has ended a wait when it was asked to, and has nothing more to end.
var errCancelled = errors.New("the wait was cancelled")

func cancelled(err error) bool {
	var refusal *pgconn.PgError
	return errors.As(err, &refusal) && refusal.Code == "57014"
}

// waitInTurn returns when the lock is granted. When ctx is done, the server is asked to end the wait. It
// may grant the lock all the same, or end what comes later; then the session is of no use any more.
func (c *Contender) waitInTurn(ctx context.Context, w *second.Wait, before call, answered func()) error {
	x := c.session
	sent := x.tier.Now()
	x.wire.SetDeadline(time.Now().Add(x.bound))
	p, err := x.send(before, call{inMode("lock", c.shared.Load()), []string{strconv.FormatInt(c.claim.key, 10), c.name(false)}})
	if err != nil {
		return err
	}
	if _, err := answer(p); err != nil {
		return err
	}
	x.Renew(sent)
	answered()
	x.wire.SetDeadline(time.Time{})
	x.tier.wait(c)
	defer x.tier.rest(c)
	w.Stands(func() second.Standing {
		if ctx.Err() != nil {
			return second.Standing{}
		}
		s := x.tier.standing(c)
		s.Quarantine = x.tier.Quarantine()
		return s
	})
	defer w.Forget()
	tried := make(chan bool, 1)
	stop := context.AfterFunc(ctx, func() {
		did := x.cancel()
		x.wire.SetDeadline(time.Now().Add(x.bound))
		tried <- did
	})
	rows, err := answer(p)
	if !stop() {
		if <-tried && cancelled(err) && p.Close() == nil {
			// The lock may have been granted right before: it outlives the statement.
			if _, err := x.ask("leave-all"); err != nil {
				return err
			}
			return errCancelled
		}
		return context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	if c.token, err = strconv.ParseInt(string(rows[0][0]), 10, 64); err != nil {
		return err
	}
	return p.Close()
}

// settle makes the holder of one that the server has granted the lock: once the lease is known to run for
// long enough, and the quarantine is over.
func (c *Contender) settle(ctx context.Context, w *second.Wait) error {
	x, t := c.session, c.claim.tier
	if t.Quarantine() != nil {
		w.Stands(func() second.Standing { return second.Standing{Quarantine: t.Quarantine()} })
		defer w.Forget()
	}
	for {
		left, _ := x.Remaining()
		calm := x.calm - t.Now()
		switch {
		case ctx.Err() != nil:
			c.discard()
			return context.Cause(ctx)
		case left < t.beat() || calm > 0 && left < 2*t.beat():
			if err := c.confirm(); err != nil {
				return err
			}
		case calm > 0:
			retry.Pause(ctx, min(calm, t.beat()/4))
		case !c.hold():
			c.discard()
			return errGone
		default:
			return nil
		}
	}
}

// confirm has the server answer once more: the time for which a wait has lasted is no lease.
func (c *Contender) confirm() error {
	if !c.session.begin() {
		return errGone
	}
	defer c.session.done()
	_, err := c.session.ask("look", array())
	if err != nil {
		c.abandon(err)
	}
	return err
}

// try takes the lock if nobody is in the way.
func (l *claim) try(ctx context.Context) (*Contender, error) {
	c, err := l.enter(ctx, false)
	if err != nil {
		return nil, err
	}
	taken, err := c.tryOnce()
	switch calm := c.session.calm - l.tier.Now(); {
	case err != nil:
		c.abandon(err)
		return nil, err
	case !taken:
		c.withdraw()
		return nil, l.tier.Quarantine().Locked()
	case calm > 0:
		c.discard()
		return nil, l.tier.Quarantine().Locked()
	case !c.hold():
		c.discard()
		return nil, errors.New("the answer has taken longer than the lease")
	}
	return c, nil
}

// withdraw ends a contender that has neither the lock nor a place in the queue.
func (c *Contender) withdraw() {
	c.spent.Store(true)
	c.giveUp()
	c.claim.tier.keep(c.session)
	c.finish(nil)
}

// abandon ends a contender of which an error has left unknown whether it queues or has the lock: the
// session ends, and that with it.
func (c *Contender) abandon(why error) {
	c.spent.Store(true)
	c.giveUp()
	var refusal *pgconn.PgError
	if errors.As(why, &refusal) && refusal.Severity != "FATAL" {
		c.claim.tier.retire(c.session) // it hears of it at once
	} else {
		c.session.broken(why)
	}
	c.finish(nil)
}

// discard gives back a lock that is not wanted.
func (c *Contender) discard() {
	if !c.spent.Swap(true) {
		c.giveUp()
		c.startRelease(nil)
	}
}
