package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// A claim is one way to queue for the lock at path, or for some of so many permits.
type claim struct {
	tier    *Tier
	path    string
	mode    second.Mode
	permits int           // 0: the lock
	linger  time.Duration // as its contenders say
}

func (l *claim) Equal(other second.Claim) bool {
	o, ok := other.(*claim)
	return ok && *l == *o
}

// Acquire takes one command if it need not wait for anybody.
func (l *claim) Acquire(ctx context.Context, w *second.Wait) (second.Grant, error) {
	return l.start(ctx, "acquire", func(ctx context.Context) (*Contender, error) {
		return l.queueUp(ctx, nil, w, nil)
	})
}

// TryAcquire takes one command, which writes nothing if somebody is in the way.
func (l *claim) TryAcquire(ctx context.Context) (second.Grant, error) {
	return l.start(ctx, "try", func(ctx context.Context) (*Contender, error) { return l.try(ctx, 0) })
}

// Requeue takes one command, which removes the one contender and appends the other.
func (l *claim) Requeue(ctx context.Context, grant second.Grant, w *second.Wait) (second.Grant, error) {
	old := grant.(*Contender)
	if loss := old.giveUp(); errors.Is(loss, second.ErrReleased) {
		return nil, loss
	} else if loss != nil {
		old.leave(loss)
		return l.Acquire(ctx, w)
	}
	g, err := l.start(ctx, "requeue", func(ctx context.Context) (*Contender, error) {
		return l.queueUp(ctx, old, w, nil)
	})
	if errors.Is(err, second.ErrClosed) { // nothing may have begun
		old.leave(nil)
	}
	if err != nil {
		old.AwaitRelease() // whoever comes next would queue behind it
	}
	return g, err
}

// start runs an attempt of which the caller may take leave at any time: the attempt then undoes itself, as soon as the commands
// that are under way have been answered. To end these instead would leave it open whether they are executed.
func (l *claim) start(ctx context.Context, op string, attempt func(context.Context) (*Contender, error)) (second.Grant, error) {
	type result struct {
		granted *Contender
		err     error
	}
	results := make(chan result)
	scope, end := l.tier.scope(ctx)
	if !l.tier.Spawn(func() {
		defer end()
		c, err := attempt(scope)
		select {
		case results <- result{c, err}:
		case <-scope.Done():
			if c != nil {
				c.leave(c.giveUp())
			}
		}
	}) {
		end()
		return nil, l.failure(op, second.ErrClosed)
	}
	select {
	case r := <-results:
		if r.err != nil {
			return nil, l.failure(op, r.err)
		}
		return r.granted, nil
	case <-scope.Done():
		return nil, l.failure(op, l.tier.explain(context.Cause(scope)))
	}
}

func (l *claim) failure(op string, err error) error {
	return fmt.Errorf("%s: %s %s: %w", l.tier.config.Package, op, l.path, err)
}

// errGone says that a contender has lost its place in the queue and has to start again, which a try does not.
var errGone = errors.New("the session is over, and the next one begins")

// queueUp queues and waits for the turn. An old contender, which has been given up, goes with the command that appends the first
// new one.
func (l *claim) queueUp(ctx context.Context, old *Contender, w *second.Wait, d *second.Demand) (*Contender, error) {
	for ; ; old = nil {
		c, err := l.enrol(ctx, true)
		if err == nil {
			if d != nil {
				c.weight.Store(max(1, int64(d.Want())))
			}
			err = c.enter(ctx, old)
		}
		if err != nil && old != nil {
			old.leave(nil) // by itself
		}
		if err == nil && !c.hold() {
			err = c.wait(ctx, w, d)
		}
		if err == nil {
			return c, nil
		}
		if c != nil {
			c.leave(c.giveUp())
		}
		if !errors.Is(err, errGone) {
			return nil, err
		}
	}
}

// try takes the lock if nobody is in the way.
func (l *claim) try(ctx context.Context, weight int) (*Contender, error) {
	c, err := l.enrol(ctx, false)
	if err != nil {
		return nil, err
	}
	c.weight.Store(int64(weight))
	if err := c.tryOnce(); err != nil {
		c.leave(c.giveUp())
		return nil, err
	}
	return c, nil
}

// Contenders takes one command.
func (l *claim) Contenders(ctx context.Context) ([]second.Contender, error) {
	a, err := l.request(ctx, List, "contenders of")
	return a.Queue, err
}

// Revoke has those that have the lock know that they are asked for it. It is nothing if nobody has.
func (l *claim) Revoke(ctx context.Context) error {
	_, err := l.request(ctx, Ask, "revoke")
	return err
}

// request sends a command about the path. A process meets the store before, unless it cannot, and knows whether that grants anything.
func (l *claim) request(ctx context.Context, op Op, what string) (a Answer, err error) {
	ctx, end := l.tier.scope(ctx)
	defer end()
	l.tier.present(ctx, false)
	err = l.tier.repeat(ctx, func() (Outcome, error) {
		a = l.tier.do(ctx, Command{Op: op, Ref: Ref{Path: l.path, Permits: l.permits}})
		return a.Outcome, a.Err
	})
	if err != nil {
		return Answer{}, l.failure(what, err)
	}
	return a, nil
}
