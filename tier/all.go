package tier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
)

// A Bundle is a set of locks that are held together; see [AcquireAll]. Release a bundle exactly once. Its methods may be called
// concurrently.
type Bundle struct {
	holds    []*Hold // in the order of the arguments
	taken    []*Hold // in the order in which they were acquired
	released atomic.Bool
}

// AcquireAll acquires several locks and blocks until it holds all of them. If two processes acquire several locks one by one in different
// orders, they can deadlock. Calls of AcquireAll cannot deadlock with each other, because each call acquires the locks in the order of
// their paths. The order of the arguments has no effect. The arguments may include [RWMutex.Writer] and [RWMutex.Reader]. While AcquireAll
// waits for a lock, it holds the locks that it has already acquired.
//
// If AcquireAll fails, it releases the locks that it has acquired. The error names the lock that could not be acquired, and wraps the error
// of [Mutex.Acquire]. If a lock is lost while AcquireAll waits for another lock, the error names the lost lock and wraps [ErrLost]. All
// waits share ctx. [WithMaxWait] limits the wait for each lock separately.
//
// If a lock is given twice, AcquireAll acquires it reentrantly, the writing side first. If ctx carries a hold of a lock, AcquireAll joins
// that hold. Caution: while you hold a lock, call AcquireAll only for locks with higher paths. With a lower path, two processes can
// deadlock, because AcquireAll cannot put the lock that you already hold last.
//
// The mutexes may belong to several registries if every process uses the same paths for the same locks. AcquireAll compares only the
// paths, without the chroot of a connect string. AcquireAll returns an error and acquires nothing if a mutex is nil, or if Acquire refuses
// a mutex. AcquireAll also returns an error if two locks with the same path belong to different registries, or are a Mutex and an
// [RWMutex]. Without arguments the bundle is empty.
func AcquireAll(ctx context.Context, mutexes ...*Mutex) (*Bundle, error) {
	order, err := inOrder(mutexes)
	if err != nil {
		return nil, err
	}
	b := &Bundle{holds: make([]*Hold, len(mutexes))}
	wait, done := context.WithCancel(ctx) // carries the holds, and ends if one of the locks is lost
	defer done()
	held := false
	defer func() {
		if !held { // this includes a callback that panics or ends the goroutine
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
	if err = cmp.Or(b.Err(), err); err != nil { // if a lock was lost, its loss also ended the wait for the next lock
		return nil, err
	}
	for _, h := range b.taken {
		h.bundle.Store(b)
	}

	held = true
	return b, nil
}

// inOrder returns the indices of the mutexes, sorted by the order in which every process acquires these mutexes.
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
			return nil, fmt.Errorf("tier: acquire all: two different locks at %s: "+
				"from two registries, or a mutex and a reader/writer lock", m.at.path)
		}
	}
	return order, nil
}

// Holds returns the hold of each mutex, in the order of the arguments of AcquireAll. Use the holds for tokens and guarded writes. Code
// that has the context of the bundle can also get a hold with [HoldFrom].
//
// Do not release these holds; [Bundle.Release] does. If you release one, the contexts of the bundle end, and the errors of Err and Release
// wrap [ErrReleased]. Release still releases the other holds.
func (b *Bundle) Holds() []*Hold { return slices.Clone(b.holds) }

// Err returns nil while all locks are held, and [ErrReleased] once the bundle is released. If a lock is lost, the error names the lock and
// wraps [ErrLost]. If a hold was released separately, the error wraps [ErrReleased]. Err checks the clock and sends no request.
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

// Context returns a context for work under all locks, derived from ctx. The context carries the hold of each lock, so acquiring one of
// these locks with the context does not block. The context ends when the first lock is lost or the bundle is released. For an empty
// bundle, Context returns ctx.
//
// Caution: goroutines that share this context share the holds and do not exclude each other; see [Hold.Context].
func (b *Bundle) Context(ctx context.Context) context.Context {
	for _, h := range b.taken {
		ctx = h.Context(ctx)
	}
	return ctx
}

// Release releases the locks in reverse order, each like [Hold.Release], and returns all errors. A second call has no effect and returns
// [ErrReleased].
func (b *Bundle) Release() error {
	if b.released.Swap(true) {
		return ErrReleased
	}
	return releaseAll(b.taken)
}

// ReleaseUnsettled releases the locks in reverse order, each like [Hold.ReleaseUnsettled], and returns all errors.
func (b *Bundle) ReleaseUnsettled() error {
	for _, h := range b.taken {
		if !h.released.Load() {
			h.own.grant.Unsettle()
		}
	}
	return b.Release()
}

// releaseAll releases the holds in reverse order. If a callback panics or ends the goroutine, releaseAll still releases the other holds.
func releaseAll(holds []*Hold) (err error) {
	if len(holds) == 0 {
		return nil
	}
	last := len(holds) - 1
	defer func() { err = errors.Join(err, releaseAll(holds[:last])) }()
	return holds[last].Release()
}
