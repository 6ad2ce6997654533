package tier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
)

// A Bundle is several locks that are held together; see [AcquireAll]. It must be released exactly
// once. Its methods may be called concurrently.
type Bundle struct {
	holds    []*Hold // in the order of the arguments
	taken    []*Hold // in the order in which they were acquired
	released atomic.Bool
}

// AcquireAll waits until all of several locks are held. Whoever takes several one by one may wait
// for ever for somebody who took the same ones in another order; who takes them with AcquireAll
// does not, as it acquires them in the order of their paths, whatever that of the arguments. The
// sides of a reader/writer lock are mutexes, too: [RWMutex.Writer] and [RWMutex.Reader].
//
// Nothing is held after an error, which names the lock that could not be had and is otherwise that
// of [Mutex.Acquire]. If a lock is lost while the others are waited for, the error names it and
// wraps [ErrLost]. The waits share ctx; [WithMaxWait] limits the wait for its own lock. A lock is
// kept from others while those behind it in the order are waited for.
//
// A lock that is there twice is entered again, first the side that writes, and so is one of which
// ctx carries a hold. The order then is the caller's: while a lock is held, acquire only such as
// have higher paths.
//
// The mutexes may be of several registries, which must then name their locks alike in every
// process: only paths are compared, without the path in a connect string. Two locks of one path, in
// different registries or as a Mutex and an [RWMutex], are an error, as they would wait for each
// other, or have no order. So are a mutex that is nil, and one that Acquire would refuse; nothing is
// acquired then. Without any mutex there is nothing to wait for: the bundle is empty.
func AcquireAll(ctx context.Context, mutexes ...*Mutex) (*Bundle, error) {
	order, err := inOrder(mutexes)
	if err != nil {
		return nil, err
	}
	b := &Bundle{holds: make([]*Hold, len(mutexes))}
	wait, done := context.WithCancel(ctx) // carries the holds; ends if one of them is lost
	defer done()
	held := false
	defer func() {
		if !held { // also if a callback panics, or ends the goroutine
			b.Release()
		}
	}()
	for _, i := range order {
		var hold *Hold
		if hold, err = mutexes[i].Acquire(wait); err != nil {
			break
		}
		b.holds[i], b.taken = hold, append(b.taken, hold)
		wait = hold.Context(wait)
	}
	if err = cmp.Or(b.Err(), err); err != nil { // a loss is also why the wait for another lock ended
		return nil, err
	}
	for _, h := range b.taken {
		h.bundle.Store(b)
	}

	held = true
	return b, nil
}

// inOrder returns the indices of the mutexes in the order in which every process acquires them.
func inOrder(mutexes []*Mutex) ([]int, error) {
	order := make([]int, len(mutexes))
	for i, m := range mutexes {
		switch {
		case m == nil:
			return nil, fmt.Errorf("tier: acquire all: mutex %d of %d is nil", i+1, len(mutexes))
		case m.invalid != nil:
			return nil, m.invalid
		}
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		m, n := mutexes[i], mutexes[j]
		return cmp.Or(cmp.Compare(m.at.path, n.at.path), cmp.Compare(m.mode, n.mode))
	})
	for k := 1; k < len(order); k++ {
		before, m := mutexes[order[k-1]], mutexes[order[k]]
		if before.at.path == m.at.path && before.key != m.key {
			return nil, fmt.Errorf("tier: acquire all: two locks at %s: of two registries, or a mutex and a reader/writer lock", m.at.path)
		}
	}
	return order, nil
}

// Holds returns the hold of each mutex, in the order in which they were given to AcquireAll: for
// their tokens, and for writes under a lock. Functions that have the context of the bundle find them
// with [HoldFrom].
//
// They are released with the bundle. To release one by itself gives up that lock alone, or the hold on it
// if the lock was entered again, and ends the contexts of the bundle; Err then wraps [ErrReleased], and so
// does the error of Release, which releases the others.
func (b *Bundle) Holds() []*Hold { return slices.Clone(b.holds) }

// Err returns nil while all locks are held, [ErrReleased] once the bundle was released, and else an
// error that names a lock and wraps [ErrLost] if it is lost, [ErrReleased] if its hold was released by
// itself. Like [Hold.Err] it reads the clock.
func (b *Bundle) Err() error {
	if b.released.Load() {
		return ErrReleased
	}
	for _, h := range b.taken {
		if err := h.Err(); err != nil {
			return fmt.Errorf("tier: hold of %s: %w", h.Path(), err)
		}
	}
	return nil
}

// Context returns a context for work under the locks, derived from ctx: that of [Hold.Context] for
// all of them. It carries every hold, so that each lock is entered again, and ends when the first
// of them is lost, or the bundle released. That of an empty bundle is ctx.
func (b *Bundle) Context(ctx context.Context) context.Context {
	for _, h := range b.taken {
		ctx = h.Context(ctx)
	}
	return ctx
}

// Release releases the locks one after the other, the last one that was acquired first; each like
// [Hold.Release], of whose errors it returns all. A second time it returns [ErrReleased], without
// any effect.
func (b *Bundle) Release() error {
	if b.released.Swap(true) {
		return ErrReleased
	}
	return releaseAll(b.taken)
}

// releaseAll releases the last one, and then the others, also if a callback panics, or ends the goroutine.
func releaseAll(holds []*Hold) (err error) {
	if len(holds) == 0 {
		return nil
	}
	last := len(holds) - 1
	defer func() { err = errors.Join(err, releaseAll(holds[:last])) }()
	return holds[last].Release()
}
