package tier

import "context"

// An ownerKey is where a context carries the hold of a lock.
type ownerKey struct {
	registry *Registry
	path     string
}

// A derivation is what ties a context made by [Hold.Context] to its hold.
type derivation struct {
	cancel context.CancelCauseFunc
	onLoss func() bool // stops the watching for the loss of the lock
	onEnd  func() bool // stops the watching for the end of the context
}

// Context returns a context for work under the lock, derived from ctx. Acquiring the
// same lock with it enters again. It is cancelled when the lock is lost, with an error
// wrapping [ErrLost] as its cause, and when the hold is released, with [ErrReleased].
//
// Derive it from a context that lives as long as the work, not from one whose deadline
// was meant for the wait.
func (h *Hold) Context(ctx context.Context) context.Context {
	c := h.own.cohort
	ctx = context.WithValue(ctx, ownerKey{c.registry, c.path}, h)
	ctx, cancel := context.WithCancelCause(ctx)

	h.mu.Lock()
	defer h.mu.Unlock()
	if h.released.Load() {
		cancel(ErrReleased)
		return ctx
	}
	life := h.own.node.Context()
	if h.derived == nil {
		h.derived = make(map[context.Context]*derivation)
	}
	h.derived[ctx] = &derivation{
		cancel: cancel,
		onLoss: context.AfterFunc(life, func() { cancel(context.Cause(life)) }),
		onEnd:  context.AfterFunc(ctx, func() { h.forget(ctx) }),
	}
	return ctx
}

// forget drops a context that has ended before the hold.
func (h *Hold) forget(ctx context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d := h.derived[ctx]; d != nil {
		d.onLoss()
		delete(h.derived, ctx)
	}
}

// release ends the context with its hold.
func (d *derivation) release() {
	d.onLoss()
	d.onEnd()
	d.cancel(ErrReleased)
}
