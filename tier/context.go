package tier

import (
	"cmp"
	"context"
	"reflect"
)

// An ownerKey is where a context carries the hold of a lock.
type ownerKey struct {
	registry *Registry
	lockKey
}

// HoldFrom returns the hold of m that ctx carries, as the context of [Mutex.Do] and that of
// [Hold.Context] do; nil if it carries none, or one that was released. It is not another hold:
// whoever made it releases it.
func HoldFrom(ctx context.Context, m *Mutex) *Hold { return m.carried(ctx) }

// WithoutHold returns ctx without the holds it carries, for goroutines that are started under a
// lock and must not share it: with it they wait for the lock like anybody else. Values and
// cancellation stay; so it ends with the hold, if ctx does.
func WithoutHold(ctx context.Context) context.Context { return withoutHold{ctx} }

type withoutHold struct{ context.Context }

func (c withoutHold) Value(key any) any {
	if _, ok := key.(ownerKey); ok {
		return nil
	}
	return c.Context.Value(key)
}

// A derivation is a context made by [Hold.Context], and what ties it to its hold.
type derivation struct {
	context context.Context
	cancel  context.CancelCauseFunc
	onLoss  func() bool // stops the watching for the loss of the lock
	onEnd   func() bool // stops the watching for the end of the context
}

// Context returns a context for work under the lock, derived from ctx. Acquiring the
// same lock with it enters again. It is cancelled when the lock is lost, with an error
// wrapping [ErrLost] as its cause, and when the hold is released, with [ErrReleased]; if
// that has happened, it is done when Context returns.
//
// Derive it from a context that lives as long as the work, not from one whose deadline
// was meant for the wait. The same ctx gives the same context, so that a hold that lasts
// may be asked any number of times. What is derived from others is kept until they end or
// the hold is released.
func (h *Hold) Context(ctx context.Context) context.Context {
	h.flags.Or(derives)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.Err(); err != nil {
		ended, cancel := context.WithCancelCause(h.carriedBy(ctx))
		cancel(err)
		return ended
	}
	parent := keyOf(ctx)
	d := h.derived[parent]
	if d == nil {
		d = h.derive(ctx)
		d.onEnd = context.AfterFunc(d.context, func() { h.forget(parent, d) })
		if h.derived == nil {
			h.derived = make(map[any]*derivation)
		}
		h.derived[parent] = d
	}
	return d.context
}

func (h *Hold) derive(ctx context.Context) *derivation {
	d := new(derivation)
	d.context, d.cancel = context.WithCancelCause(h.carriedBy(ctx))
	life := h.own.grant.Context()
	d.onLoss = context.AfterFunc(life, func() { d.cancel(context.Cause(life)) })
	return d
}

// carriedBy returns ctx with the hold.
func (h *Hold) carriedBy(ctx context.Context) context.Context {
	c := h.own.cohort
	return context.WithValue(ctx, ownerKey{c.registry, c.key}, h)
}

// keyOf returns what stands for ctx in a map: nearly always ctx itself, but a type of
// somebody's may not be comparable.
func keyOf(ctx context.Context) any {
	if reflect.ValueOf(ctx).Comparable() {
		return ctx
	}
	return new(byte)
}

// forget drops a context that has ended before the hold.
func (h *Hold) forget(parent any, d *derivation) {
	h.mu.Lock()
	delete(h.derived, parent)
	h.mu.Unlock()
	d.onLoss()
}

// endDerived ends the contexts with their hold.
func (h *Hold) endDerived() {
	h.mu.Lock()
	derived := h.derived
	h.derived = nil
	h.mu.Unlock()
	loss := context.Cause(h.own.grant.Context())
	for _, d := range derived {
		d.release(loss)
	}
}

// release ends the context with its hold. Its cause is a loss that came before, of which
// the goroutine that tells it may not have got there yet.
func (d *derivation) release(loss error) {
	d.onLoss()
	d.onEnd() // nobody has to be told, which would cost a goroutine
	d.cancel(cmp.Or(loss, ErrReleased))
}
