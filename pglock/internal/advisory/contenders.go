package advisory

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/internal/second"
)

// Contenders reads the lock table of the server once. Those that wait have no token yet. In a quarantine, all that
// the server has granted was granted since that began.
func (l *claim) Contenders(ctx context.Context) ([]second.Contender, error) {
	var queue []second.Contender
	places, err := l.read(ctx)
	for _, p := range places {
		d := p.describe()
		d.Quarantined = l.tier.Quarantine() != nil && p.granted && p.ours()
		queue = append(queue, d)
	}
	if err != nil {
		return nil, l.failure("contenders of", err)
	}
	return queue, nil
}

func (l *claim) read(ctx context.Context) (queue []place, err error) {
	err = l.insist(ctx, func(x *session) error {
		rows, err := x.ask("look", array(l.key))
		queue = places(rows)
		return err
	})
	return queue, err
}

// insist repeats a request until it is answered, or ctx is done.
func (l *claim) insist(ctx context.Context, request func(*session) error) error {
	ctx, end := l.tier.scope(ctx)
	defer end()
	for pace := retry.New(); ; {
		err := l.tier.await(ctx, true)
		if err == nil {
			err = l.tier.once(ctx, request)
		}
		if err == nil || l.tier.config.Permanent(err) {
			return err
		}
		if pausing := retry.Pause(ctx, pace.NextBackOff()); pausing != nil {
			return l.tier.explain(pausing)
		}
	}
}

// once makes a request in a session that nobody uses, and waits for its answer no longer than ctx lasts.
func (t *Tier) once(ctx context.Context, request func(*session) error) error {
	answered := make(chan error, 1)
	if !t.spawn(func() {
		x, err := t.session(ctx)
		if err == nil {
			err = errGone
			if x.begin() {
				err = request(x)
				x.done()
			}
			t.keep(x)
		}
		answered <- err
	}) {
		return second.ErrClosed
	}
	select {
	case err := <-answered:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Revoke notifies those that have the lock. A notification can be lost, so it is sent again until each
// shows in its name that it knows, or has given the lock up; after a moment, in the background.
func (l *claim) Revoke(ctx context.Context) error {
	unaware, err := l.askAll(ctx)
	for end := time.Now().Add(l.tier.config.TTL / 8); err == nil && unaware && time.Now().Before(end); {
		if err = retry.Pause(ctx, l.tier.config.TTL/100); err == nil {
			unaware, err = l.askAll(ctx)
		}
	}
	if err != nil {
		return l.failure("revoke", err)
	}
	if unaware {
		l.tier.spawn(l.keepAsking)
	}
	return nil
}

// keepAsking gives up after a lease, by when whoever had the lock and is not heard from has lost it.
func (l *claim) keepAsking() {
	ctx, cancel := context.WithTimeout(l.tier.ctx, l.tier.config.TTL)
	defer cancel()
	for pace := retry.New(); retry.Pause(ctx, pace.NextBackOff()) == nil; {
		if unaware, err := l.askAll(ctx); err == nil && !unaware {
			return
		}
	}
}

// askAll asks those that do not know it yet, and reports whether there was one.
func (l *claim) askAll(ctx context.Context) (unaware bool, err error) {
	queue, err := l.read(ctx)
	if err != nil {
		return false, err
	}
	for _, p := range queue {
		d := p.describe()
		switch {
		case !p.granted || d.Asked:
			continue
		case !p.ours():
			return false, fmt.Errorf("server process %d is not of this package, and would not hear of it: %w", p.pid, errors.ErrUnsupported)
		}
		unaware = true
		what := d.ID + " " + strconv.FormatInt(d.Token, 10)
		if err := l.insist(ctx, func(x *session) error {
			_, err := x.ask("ask", what)
			return err
		}); err != nil {
			return false, err
		}
	}
	return unaware, nil
}

// revoke tells the owner that it is asked for the lock, and shows that it knows.
func (c *Contender) revoke() {
	if c.revoked.IsSet() {
		return
	}
	c.revoked.Set()
	c.claim.tier.spawn(func() {
		if !c.session.begin() {
			return
		}
		defer c.session.done()
		if !c.over() {
			c.session.askPatiently("name", "tierlock "+strconv.FormatInt(c.token, 10)+c.name(true))
		}
	})
}
