package tier

import "context"

// An ownerKey is where a context carries the hold of a lock.
type ownerKey struct {
	registry *Registry
	path     string
}

// Context returns a context for work under the lock, derived from ctx. Acquiring the
// same lock with it enters again. It is cancelled when the lock is lost, with an error
// wrapping [ErrLost] as its cause, and when the hold is released, with [ErrReleased]; if
// that has happened, it is done when Context returns.
//
// Derive it from a context that lives as long as the work, not from one whose deadline
// was meant for the wait. Any number can be made while the hold lasts: all those whose
// parents end together, or never, cost it one entry.
func (h *Hold) Context(ctx context.Context) context.Context {
	return &workContext{Context: ctx, end: h.endWith(ctx), hold: h}
}

// A workContext has the values and the deadline of one context and the end of another.
type workContext struct {
	context.Context
	end  context.Context
	hold *Hold
}

func (w *workContext) Done() <-chan struct{} { return w.end.Done() }

func (w *workContext) Err() error { return w.end.Err() }

func (w *workContext) Value(key any) any {
	switch c := w.hold.own.cohort; key {
	case ownerKey{c.registry, c.path}:
		return w.hold
	case cancelKey:
		return w.end.Value(key)
	}
	return w.Context.Value(key)
}

// cancelKey is how package context asks a context for what can be cancelled in it, for
// its cause and to derive others from it without a goroutine. It does not export the
// key, but it asks anybody.
var cancelKey = func() (key any) {
	context.Cause(keyhole{context.Background(), &key})
	return key
}()

type keyhole struct {
	context.Context
	seen *any
}

func (keyhole) Err() error { return context.Canceled }

func (k keyhole) Value(key any) any {
	*k.seen = key
	return nil
}

// An ending ends with its hold, with the lock, and with the contexts of one Done channel.
type ending struct {
	context context.Context
	cancel  context.CancelCauseFunc
	onLoss  func() bool // stops the watching for the loss of the lock
	onEnd   func() bool // stops the watching for the end of the context
}

// endWith returns what ends with h and ctx.
func (h *Hold) endWith(ctx context.Context) context.Context {
	done := ctx.Done()
	if done == nil {
		ctx = context.Background() // need not be kept for its values
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.Err(); err != nil {
		ended, cancel := context.WithCancelCause(ctx)
		cancel(err)
		return ended
	}
	e := h.endings[done]
	if e == nil {
		e = new(ending)
		e.context, e.cancel = context.WithCancelCause(ctx)
		life := h.own.node.Context()
		e.onLoss = context.AfterFunc(life, func() { e.cancel(context.Cause(life)) })
		e.onEnd = context.AfterFunc(e.context, func() { h.forget(done) })
		if h.endings == nil {
			h.endings = make(map[<-chan struct{}]*ending)
		}
		h.endings[done] = e
	}
	return e.context
}

// forget drops an ending that has come before that of the hold.
func (h *Hold) forget(done <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.endings[done]; e != nil {
		e.onLoss()
		delete(h.endings, done)
	}
}

// release brings the ending about with that of the hold.
func (e *ending) release() {
	e.onLoss()
	e.onEnd() // nobody has to be told, which would cost a goroutine
	e.cancel(ErrReleased)
}
