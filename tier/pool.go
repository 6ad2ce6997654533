package tier

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// A pool is what this process has at stake in one semaphore: those who wait for permits, first in,
// first out, and the courier that goes to the store for them while there are any.
//
// It keeps no permits. What is released goes on to whoever is first, if that is enough for all that
// he wants, and else back to the store: two processes that each kept a part of what their first
// ones want would wait for each other.
type pool struct {
	registry *Registry
	path     string
	permits  int
	members  int // guarded by registry.mu: callers, holders and couriers

	waiting  // guarded by its mutex, as are the fields below
	draining bool
	trip     *second.Demand     // what the courier is out for; nil while there is none
	quit     context.CancelFunc // calls it back
	taken    int                // permits that claimants have
	alone    time.Duration      // when permits were released last while no other process was known to wait
}

// joinPool returns the pool of path, which stays until as many calls of partPool.
func (r *Registry) joinPool(path string, permits int) (*pool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.draining() || r.closed {
		return nil, ErrClosed
	}
	p := r.pools[path]
	if p == nil {
		p = &pool{registry: r, path: path, permits: permits}
		r.pools[path] = p
	}
	if p.permits != permits {
		return nil, fmt.Errorf("%w: this process uses the path for %d, and is now asked for %d; use one number everywhere",
			ErrPermits, p.permits, permits)
	}
	p.members++
	return p, nil
}

func (r *Registry) partPool(p *pool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.members--; p.members == 0 {
		delete(r.pools, p.path)
		r.noteDrained()
	}
}

// spawn runs f for the pool, which stays until f ends, unless the registry is closed.
func (p *pool) spawn(f func()) bool {
	r := p.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	p.members++
	r.tasks.Go(func() {
		defer r.partPool(p)
		f()
	})
	return true
}

// enter waits until the claimant has its permits, or ctx is done.
func (p *pool) enter(ctx context.Context, c *claimant) error {
	if limit := c.semaphore.options.maxWait; limit > 0 {
		wait, cancel := context.WithTimeoutCause(ctx, limit, ErrWaitLimit)
		defer cancel()
		ctx = wait
	}
	long, stop := p.registry.options.observer.alarm()
	defer stop()
	begun := p.registry.now()
	p.mu.Lock()
	if p.draining {
		p.mu.Unlock()
		return c.semaphore.failure("acquire", ErrClosed)
	}
	p.join(c)
	if p.trip == nil {
		p.fetchLocked()
	}
	p.mu.Unlock()
	return p.await(ctx, c, begun, long)
}

// try takes permits if enough are free and nobody waits.
func (p *pool) try(ctx context.Context, c *claimant) error {
	begun := p.registry.now()
	p.mu.Lock()
	switch {
	case p.draining:
		p.mu.Unlock()
		return c.semaphore.failure("try", ErrClosed)
	case p.trip != nil:
		p.mu.Unlock()
		return c.semaphore.failure("try", ErrLocked)
	}
	p.join(c)
	p.tryLocked(c)
	p.mu.Unlock()
	err := p.await(ctx, c, begun, nil)
	if ended := (*WaitError)(nil); errors.As(err, &ended) {
		return c.semaphore.failure("try", ended.Err)
	}
	return err
}

// withdraw takes a claimant out of the queue. If it was served a moment ago, others get what it had; it
// waits for nothing any more.
func (p *pool) withdraw(c *claimant) {
	p.mu.Lock()
	served, first := c.place == nil && c.refusal == nil, p.first() == c
	p.leave(c)
	if first {
		p.changedLocked()
	}
	p.mu.Unlock()
	if served { // when the registry is closed they go with the session
		p.spawn(func() { p.release(c) })
	}
}

// changedLocked is called when somebody else is first, or nobody.
func (p *pool) changedLocked() {
	switch {
	case p.trip == nil:
	case p.empty():
		p.quit() // nobody wants anything any more
	default:
		p.trip.Changed.Set()
	}
}

// release passes what a claimant had on to those who wait, as far as that is fair, and gives up the
// rest.
func (p *pool) release(c *claimant) error {
	p.mu.Lock()
	p.taken -= len(c.taken)
	rest := c.taken
	if p.fairLocked(c) {
		rest = p.serveLocked(c.taken, c.since)
	}
	p.mu.Unlock()
	if len(rest) == 0 {
		return nil
	}
	return c.semaphore.store.Release(rest)
}

// fairLocked: permits stay in the process while no other one waits, and else for the budget, which
// runs from when they came or, if that is later, from the last release before another process was
// seen. They are never kept without a valid lease, nor while the connection is down.
func (p *pool) fairLocked(c *claimant) bool {
	now := p.registry.now()
	if p.empty() || c.errAt(now) != nil || p.registry.second.Err() != nil || !c.taken[0].Leased() {
		return false
	}
	if p.trip == nil || !p.trip.Contested() {
		p.alone = now
	}
	budget := c.semaphore.options.handOff
	return budget > 0 && now-max(p.alone, c.since) < budget
}

// serveLocked gives permits to those who are first, as far as they go, and returns the rest.
func (p *pool) serveLocked(permits []second.Permit, since time.Duration) []second.Permit {
	now := p.registry.now()
	for c := p.first(); c != nil && c.count <= len(permits); c = p.first() {
		p.leave(c)
		c.taken, c.since = permits[:c.count:c.count], since
		c.served = now
		p.taken += c.count
		permits = permits[c.count:]
		close(c.turn)
	}
	p.changedLocked()
	return permits
}

// drain turns away those who wait, and those who are about to.
func (p *pool) drain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.draining = true
	p.refuse(ErrClosed, everybody)
	if p.trip != nil {
		p.quit()
	}
}
