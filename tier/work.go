package tier

import (
	"cmp"
	"context"
	"reflect"
	"sync"
)

// contexts are the contexts for work under one hold, or under permits that were taken together. The contexts end when the hold is lost or
// released. The zero value is empty.
type contexts struct {
	mu      sync.Mutex          // guards the fields below
	derived map[any]*derivation // by their parents, but for some that have ended
	swept   int                 // how many were left when those that have ended were last dropped
}

// A derivation is a context for work, with its connections to the contexts that end it.
type derivation struct {
	context context.Context
	cancel  context.CancelCauseFunc
	onLoss  func() bool // stops the watching for the loss
}

// under returns a context that is derived from ctx, also ends with life, and has what carry adds to it. If err returns an error, the
// context has already ended. The functions that end it refer neither to c nor to what carry has added. Therefore ctx and life do not keep
// a forgotten hold alive, unless ctx carries it.
func (c *contexts) under(ctx, life context.Context, err func() error, carry func(context.Context) context.Context) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	over, parent := err(), keyOf(ctx)
	if d := c.derived[parent]; d != nil && over == nil {
		if d.context.Err() == nil {
			return d.context
		}
		d.onLoss() // its parent is used again, as those of some frameworks are
	}
	bare, cancel := context.WithCancelCause(ctx)
	d := &derivation{context: carry(bare), cancel: cancel}
	if over != nil {
		cancel(over)
		return d.context
	}
	d.onLoss = context.AfterFunc(life, func() { cancel(context.Cause(life)) })
	c.sweepLocked()
	c.derived[parent] = d
	return d.context
}

// keyOf returns the key of ctx in a map: nearly always ctx itself, but a context type of the program may not be comparable.
func keyOf(ctx context.Context) any {
	if reflect.ValueOf(ctx).Comparable() {
		return ctx
	}
	return new(byte)
}

// sweepLocked makes room for another context. Whenever their number has doubled, it drops those that have ended before their hold.
func (c *contexts) sweepLocked() {
	if c.derived == nil {
		c.derived = make(map[any]*derivation)
	}
	if len(c.derived) < 2*max(c.swept, 8) {
		return
	}
	for parent, d := range c.derived {
		if d.context.Err() != nil {
			d.onLoss()
			delete(c.derived, parent)
		}
	}
	c.swept = len(c.derived)
}

// end ends the contexts at the release. If life has ended with a loss before, the loss is the cause, even if the goroutine that reacts to
// the loss has not run yet.
func (c *contexts) end(life context.Context) {
	c.mu.Lock()
	derived := c.derived
	c.derived = nil
	c.mu.Unlock()
	for _, d := range derived {
		d.onLoss()
		d.cancel(cmp.Or(context.Cause(life), ErrReleased))
	}
}
