package tier

import (
	"context"
	"errors"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// tellWaiting tells of the wait of c. If that panics, the wait is over.
func (p *pool) tellWaiting(ctx context.Context, c *claimant, begun time.Duration) {
	returned := false
	defer func() {
		if !returned {
			p.withdraw(c)
		}
	}()
	p.registry.options.observer.Waiting(ctx, p.wait(c, begun))
	returned = true
}

// take takes permits and tells of them.
func (o *Observer) take(ctx context.Context, p *pool, c *claimant, waits bool, take func(*pool, context.Context, *claimant) error) (*Permits, error) {
	r := p.registry
	begun := r.now()
	var permits *Permits
	returned := false
	defer func() {
		switch {
		case returned:
		case permits != nil:
			permits.Release()
		default:
			r.partPool(p)
		}
	}()
	err := take(p, ctx, c)
	if err == nil {
		permits = newPermits(p, c)
		permits.watched = &watched{observer: o, since: c.served, ctx: ctx}
		permits.tellAcquired(begun)
		returned = true
		return permits, nil
	}
	returned = true
	r.partPool(p)
	if waits && o.Failed != nil {
		now := r.now()
		o.Failed(ctx, Failed{Path: p.path, At: r.at(now), Waited: now - begun, Err: err})
	}
	return nil, err
}

func (p *Permits) tellAcquired(begun time.Duration) {
	r, w := p.pool.registry, p.watched
	if w.observer.PermitsAcquired != nil {
		w.observer.PermitsAcquired(w.ctx, PermitsAcquired{Permits: p, At: r.at(w.since), Waited: w.since - begun})
	}
	if w.observer.PermitsLost != nil {
		w.watch(r, p.lost, p.tellLoss)
	}
}

func (p *Permits) tellLoss(err error) {
	r, w := p.pool.registry, p.watched
	w.observer.PermitsLost(w.ctx, PermitsLost{Permits: p, At: r.at(r.now()), Err: err, Cause: LossCause(second.CauseOf(err))})
}

// releaseWatched is the release of permits of which an observer was told.
func (p *Permits) releaseWatched() error {
	r, w, o := p.pool.registry, p.watched, p.watched.observer
	now := r.now()
	pending := w.unwatch(r)
	err := p.giveUp()
	switch {
	case pending:
		<-w.told
	case o.PermitsLost != nil && errors.Is(err, ErrLost):
		p.tellLoss(err)
	}
	if o.PermitsReleased != nil {
		o.PermitsReleased(w.ctx, PermitsReleased{Permits: p, At: r.at(now), Held: now - w.since, Err: err})
	}
	return err
}
