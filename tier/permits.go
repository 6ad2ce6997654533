package tier

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// Permits are what one call of Acquire took of a semaphore. They are lost together, and must be
// released exactly once. Methods may be called concurrently.
type Permits struct {
	pool     *pool
	claimant *claimant
	released atomic.Bool

	lost    context.Context // ends with the loss of any of them
	endLost context.CancelCauseFunc
	unwatch []func() bool
	watched *watched // nil without an observer

	mu      sync.Mutex // guards the field below
	derived map[context.Context]context.CancelCauseFunc
}

func newPermits(p *pool, c *claimant) *Permits {
	all := &Permits{pool: p, claimant: c, derived: make(map[context.Context]context.CancelCauseFunc)}
	all.lost, all.endLost = context.WithCancelCause(context.Background())
	for _, one := range c.taken {
		life := one.Context()
		all.unwatch = append(all.unwatch, context.AfterFunc(life, func() { all.lose(context.Cause(life)) }))
	}
	return all
}

// lose is one step to whoever releases the permits at that moment: what ended with a loss did so with its cause.
func (p *Permits) lose(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endLost(cause)
	p.endDerivedLocked(cause)
}

// Count returns how many permits they are.
func (p *Permits) Count() int { return len(p.claimant.taken) }

// Path returns the path of the semaphore.
func (p *Permits) Path() string { return p.pool.path }

// Lost returns a channel that is closed when one of the permits is no longer certain to be ours,
// before the store can give it to anybody else; see [Hold.Lost]. After the release it stays as it is.
func (p *Permits) Lost() <-chan struct{} { return p.lost.Done() }

// Err returns nil while all permits are held, an error wrapping [ErrLost] once one is lost, and
// [ErrReleased] once they were released. It reads the clock itself, like [Hold.Err].
func (p *Permits) Err() error {
	err := p.claimant.errAt(p.pool.registry.now())
	if p.released.Load() { // asked last: the end of permits that were given up is no loss
		return ErrReleased
	}
	return err
}

// ValidUntil returns up to when the permits are certainly ours, as [Hold.ValidUntil] does.
func (p *Permits) ValidUntil() time.Time {
	if p.Err() != nil {
		return time.Time{}
	}
	return p.claimant.taken[0].ValidUntil() // all belong to one session
}

// Token returns the fencing token of the turn in which this process took the permits from the
// store. It is positive, never lower than that of permits that were taken before, and the same for
// those that were taken together or are handed on. As several have permits at a time, a resource
// should not refuse lower ones; it may compare them with the tokens of a lock that came later.
func (p *Permits) Token() int64 { return p.claimant.taken[0].Token() }

// Context returns a context for work under the permits, derived from ctx. It is cancelled when one
// of them is lost, with an error wrapping [ErrLost] as its cause, and when they are released, with
// [ErrReleased]; if that has happened, it is done when Context returns.
func (p *Permits) Context(ctx context.Context) context.Context {
	work, cancel := context.WithCancelCause(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.Err(); err != nil {
		cancel(err)
		return work
	}
	p.derived[work] = cancel
	context.AfterFunc(work, func() { p.forget(work) })
	return work
}

// forget drops a context that has ended.
func (p *Permits) forget(work context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.derived, work)
}

func (p *Permits) endDerivedLocked(cause error) {
	for _, cancel := range p.derived {
		cancel(cause)
	}
}

// Release gives the permits up: to goroutines of this process that wait, as far as that is fair, and
// the others in the store. It waits for an unreachable store for a third of the lease at most, after
// which they are removed in the background or go with the session.
//
// It returns nil if all were ours to the end, an error wrapping [ErrLost] if one was lost before,
// and [ErrReleased], without any effect, if they were released before.
func (p *Permits) Release() error {
	if p.released.Swap(true) {
		return ErrReleased
	}
	for _, unwatch := range p.unwatch {
		unwatch()
	}
	p.mu.Lock()
	p.endDerivedLocked(ErrReleased)
	p.mu.Unlock()
	defer p.pool.registry.partPool(p.pool)
	if p.watched != nil {
		return p.releaseWatched()
	}
	return p.giveUp()
}

// giveUp returns the loss if there was one, and tells of it if nobody has yet.
func (p *Permits) giveUp() error {
	err := p.pool.release(p.claimant)
	if errors.Is(err, ErrLost) {
		p.endLost(err)
	}
	return err
}
