package tier

import (
	"cmp"
	"context"
	"reflect"
	"sync"
)

// The type contexts has the contexts for work under one hold, or under permits that were taken together. These contexts end when the hold
// is lost or released. The zero value is empty.
type contexts struct {
	mu      sync.Mutex          // guards the fields below
	derived map[any]*derivation // the key is the parent of the context; contexts that have ended may be missing
	swept   int                 // the number of contexts that the last sweep left
}

// A derivation is a context for work, with the functions that end it.
type derivation struct {
	context context.Context
	cancel  context.CancelCauseFunc
	onLoss  func() bool // ends the watching for the loss
}

// under returns a context that is derived from ctx, that ends with life, and to which carry has added a value. If err returns an error, the
// returned context has already ended. The functions that end the context refer neither to c nor to the added value. Therefore ctx and life
// do not keep a forgotten hold alive, unless ctx carries that hold.
func (c *contexts) under(ctx, life context.Context, err func() error, carry func(context.Context) context.Context) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	over, parent := err(), keyOf(ctx)
	if d := c.derived[parent]; d != nil && over == nil {
		if d.context.Err() == nil {
			return d.context
		}
		d.onLoss() // ctx is equal to an earlier parent whose context has ended: some frameworks reuse a context
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

// keyOf returns the key of ctx in a map. The key is nearly always ctx itself, but the program may have a context type that is not
// comparable.
func keyOf(ctx context.Context) any {
	if reflect.ValueOf(ctx).Comparable() {
		return ctx
	}
	return new(byte)
}

// sweepLocked is called before a context is added. When the number of contexts has doubled, it removes the contexts that have ended.
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

// end ends the contexts at the release of the hold. If life has already ended with a loss, the loss is the cause of their end, even if the
// goroutine that reacts to the loss has not run yet.
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
