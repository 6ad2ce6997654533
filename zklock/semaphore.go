package zklock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/internal/second"
)

// A semaphore has the layout of Curator's InterProcessSemaphoreV2: below its path, whoever takes
// permits holds the lock "locks", and each permit that is taken is an ephemeral child of "leases".
// All children there count, whoever made them.
type semaphore struct {
	*Client
	path     string // on the server
	permits  int
	locks    *Lock
	leases   *Lock       // the home of the permits' nodes, which nobody queues for
	unmarked atomic.Bool // the number may not be written
}

func (t secondTier) Semaphore(path string, permits int, o second.Options) (second.Semaphore, error) {
	if err := ValidatePath(path); err != nil {
		return nil, err
	}
	queue, err := t.Claim(path+"/locks", second.Options{Own: o.Own})
	if err != nil {
		return nil, err
	}
	locks := queue.(claim).lock
	leases := *locks
	leases.path = parentOf(locks.path) + "/leases"
	return &semaphore{Client: t.Client, path: parentOf(locks.path), permits: permits, locks: locks, leases: &leases}, nil
}

func (s *semaphore) Equal(other second.Semaphore) bool {
	o, ok := other.(*semaphore)
	return ok && s.permits == o.permits && s.locks.equal(o.locks)
}

// Acquire begins again at the tail of the queue when its place there is lost.
func (s *semaphore) Acquire(ctx context.Context, d *second.Demand) ([]second.Permit, error) {
	ctx, end := s.link.Scope(ctx)
	defer end()
	for pace := retry.New(); ; {
		turn, err := s.locks.acquire(ctx, &d.Wait)
		if err != nil {
			return nil, err
		}
		taken, err := s.task(ctx, func() ([]*Node, error) { return s.newVigil(turn, d).keep(ctx) })
		if !errors.Is(err, errGone) {
			return s.granted("acquire", taken, err)
		}
		if err := retry.Pause(ctx, pace.NextBackOff()); err != nil {
			return s.granted("acquire", nil, s.link.Explain(err))
		}
	}
}

// TryAcquire looks before it writes.
func (s *semaphore) TryAcquire(ctx context.Context, k int) ([]second.Permit, error) {
	if err := s.Err(); err != nil {
		return s.granted("try", nil, err)
	}
	ctx, end := s.link.Scope(ctx)
	defer end()
	if _, err := s.task(ctx, func() ([]*Node, error) { _, err := s.room(k); return nil, err }); err != nil {
		return s.granted("try", nil, err)
	}
	turn, err := s.locks.TryAcquire(ctx)
	if err != nil {
		return nil, err
	}
	taken, err := s.task(ctx, func() ([]*Node, error) { return s.tryTake(ctx, turn, k) })
	return s.granted("try", taken, err)
}

// granted names the path in an error.
func (s *semaphore) granted(op string, taken []*Node, err error) ([]second.Permit, error) {
	if err != nil {
		return nil, fmt.Errorf("zklock: %s %s: %w", op, s.path, err)
	}
	return permitsOf(taken), nil
}

func permitsOf(taken []*Node) []second.Permit {
	permits := make([]second.Permit, len(taken))
	for i, n := range taken {
		permits[i] = grant{n}
	}
	return permits
}

// task runs f where Close waits for its end. A caller who leaves before that has what was taken given up.
func (s *semaphore) task(ctx context.Context, f func() ([]*Node, error)) ([]*Node, error) {
	type result struct {
		taken []*Node
		err   error
	}
	results := make(chan result)
	if !s.link.Spawn(func() {
		taken, err := f()
		select {
		case results <- result{taken, err}:
		case <-ctx.Done():
			if len(taken) > 0 {
				s.Release(permitsOf(taken))
			}
		}
	}) {
		return nil, ErrClosed
	}
	select {
	case r := <-results:
		return r.taken, r.err
	case <-ctx.Done():
		return nil, s.link.Explain(context.Cause(ctx))
	}
}

// tryTake takes permits if they are free, and gives the turn up in any case.
func (s *semaphore) tryTake(ctx context.Context, turn *Node, k int) ([]*Node, error) {
	seen, err := s.room(k)
	if err == nil {
		err = s.mark(seen)
	}
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		turn.Release()
		return nil, err
	}
	return s.exchange(ctx, turn, k, seen)
}

// room looks whether k permits are free.
func (s *semaphore) room(k int) (sight, error) {
	v := s.newVigil(nil, nil)
	defer v.end()
	seen, err := s.look(v)
	if err == nil && seen.free < k {
		err = ErrLocked
	}
	return seen, err
}
