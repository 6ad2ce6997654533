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
// What is released goes on to whoever is first. It keeps permits only for him, and only while this
// process has enough for all that he wants.
type pool struct {
	registry *Registry
	path     string
	permits  int
	members  int // guarded by registry.mu: callers, holders and couriers

	waiting  // guarded by its mutex, as are the fields below
	draining bool
	trip     *second.Demand     // what the courier is out for; nil while there is none
	asked    *second.Demand     // what it was last asked about, as it was first in the queue then
	quit     context.CancelFunc // calls it back
	taken    int                // permits that claimants have
	kept     []permit           // for the first one, too few for him as yet
	expiry   *time.Timer        // when the first of those has to go
	rivals   bool               // the last courier saw others in the queue
	others   int                // how many
	alone    time.Duration      // when it was last looked while no other process was known to wait
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
		return c.semaphore.failure("try", p.registry.taken())
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
		p.passLocked(nil)
	}
	p.mu.Unlock()
	if served { // when the registry is closed they go with the session
		p.spawn(func() { p.release(c) })
	}
}

// drain turns away those who wait, and those who are about to.
func (p *pool) drain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.draining = true
	p.refuse(ErrClosed, everybody)
	p.passLocked(nil)
}
