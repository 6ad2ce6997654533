package tier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
)

// A Bundle is a set of locks that are held together; see [AcquireAll]. Release it exactly once. Its methods may be called concurrently.
type Bundle struct {
	holds    []*Hold // in the order of the arguments
	taken    []*Hold // in the order in which they were acquired
	released atomic.Bool
}

// AcquireAll acquires several locks and blocks until it holds all of them. Taking locks one by one can deadlock with another process that
// takes them in another order. AcquireAll cannot, because it always acquires in the order of paths, whatever the order of the arguments.
// It also takes the sides of a reader/writer lock, [RWMutex.Writer] and [RWMutex.Reader]. Locks acquired first are held while it waits
// for the others.
//
// After an error no lock is held. The error names the lock that could not be acquired, and is otherwise that of [Mutex.Acquire]. If a
// lock is lost while AcquireAll waits for others, the error names it and wraps [ErrLost]. All waits share ctx; [WithMaxWait] limits the
// wait for its own lock.
//
// A lock that is given twice is acquired reentrantly, the writing side first, and so is a lock whose hold ctx carries. Caution: while you
// hold a lock, acquire only locks with higher paths, because AcquireAll cannot order that lock.
//
// The mutexes may belong to several registries if every process uses the same paths for the same locks: only paths are compared, without
// the chroot of a connect string. AcquireAll returns an error, and acquires nothing, for two locks of one path in different registries or
// as Mutex and [RWMutex], for a nil mutex, and for one that Acquire refuses. Without arguments the bundle is empty.
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

// Holds returns the hold of each mutex, in the order of the arguments of AcquireAll, for tokens and guarded writes. Code that has the
// context of the bundle finds them with [HoldFrom].
//
// The bundle releases them. If you release one of them yourself, the contexts of the bundle end, and Err and the error of Release wrap
// [ErrReleased]; Release still releases the others.
func (b *Bundle) Holds() []*Hold { return slices.Clone(b.holds) }

// Err returns nil while all locks are held, and [ErrReleased] once the bundle is released. Otherwise the error names a lock and wraps
// [ErrLost], or [ErrReleased] if its hold was released separately. It checks the clock and sends no request.
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

// Context returns a context for work under all locks, derived from ctx. It carries every hold, so acquiring one of these locks with it
// does not block. It ends when the first lock is lost or the bundle is released. For an empty bundle it is ctx.
//
// Caution: goroutines that share this context share the holds. They are not excluded from each other; see [Hold.Context].
func (b *Bundle) Context(ctx context.Context) context.Context {
	for _, h := range b.taken {
		ctx = h.Context(ctx)
	}
	return ctx
}

// Release releases the locks in reverse order, each like [Hold.Release], and returns all errors. A second call returns [ErrReleased]
// without any effect.
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
