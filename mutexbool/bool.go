// Package mutexbool provides a boolean that goroutines can wait for. It is the BooleanMutex of agapple's distributed lock, as a Go type
// with channels and contexts.
//
// A [Bool] is a state that stays, and not an event that passes. Set wakes all waiters, and later calls of [Bool.Wait] return at once until
// Clear is called. If Clear is called immediately after Set, waiters may miss that b was true. Use a Bool to connect an asynchronous
// callback to a blocking call. The callback stores its result in another variable and calls Set. The waiting goroutine wakes and reads the
// result. This loop misses no change:
//
//	for {
//		changed.Clear()
//		if done := look(); done {
//			return nil
//		}
//		if err := changed.Wait(ctx); err != nil {
//			return err
//		}
//	}
//
// If a change happens after Clear, either the function look sees the change, or Wait returns.
package mutexbool

import (
	"context"
	"sync"
)

// A Bool is a boolean that goroutines can wait for. The zero Bool is false and ready to use. A Bool must not be copied after first use.
// All methods may be called concurrently. Only Wait blocks, so it is safe to call Set from a callback.
type Bool struct {
	mu     sync.Mutex // guards the fields below
	set    bool
	raised chan struct{} // closed while set; made when first asked for
}

// Set makes b true and wakes every waiter. Setting a true Bool does nothing.
func (b *Bool) Set() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.set {
		return
	}
	b.set = true
	close(b.raisedLocked())
}

// Clear makes b false. Later calls of [Bool.Wait] block. Channels that [Bool.C] returned while b was true stay closed.
func (b *Bool) Clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.set {
		b.set = false
		b.raised = nil
	}
}

// IsSet reports whether b is true.
func (b *Bool) IsSet() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.set
}

// C returns a channel that is closed once b is true, for use in a select. The channel
// is valid until Clear; call C again after that.
func (b *Bool) C() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.raisedLocked()
}

// Wait blocks until b is true or ctx is done. Wait returns nil if b is true, and otherwise [context.Cause] of ctx. If b is true and ctx is
// done, it returns nil.
func (b *Bool) Wait(ctx context.Context) error {
	raised := b.C()
	select {
	case <-raised:
		return nil
	default:
	}
	select {
	case <-raised:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (b *Bool) raisedLocked() chan struct{} {
	if b.raised == nil {
		b.raised = make(chan struct{})
	}
	return b.raised
}
