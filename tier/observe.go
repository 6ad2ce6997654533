package tier

import (
	"context"
	"errors"
	"reflect"
	"runtime"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// What is done for an observer. Without one, nothing of this runs.

// follow has the observer told of the connection.
func (o *Observer) follow(t second.Tier) {
	if o != nil && o.Connection != nil {
		t.Notify(func(c second.Connection) {
			tell(func() { o.Connection(Connection{State: ConnectionState(c.State), Away: c.Away, Err: c.Err}) })
		})
	}
}

// tell calls an observer in a goroutine whose end Close waits for.
//
//go:noinline
func tell(f func()) { f() }

var tellName = runtime.FuncForPC(reflect.ValueOf(tell).Pointer()).Name()

// telling reports whether an observer calls, in such a goroutine. Only the stack knows: what an observer is
// told need not carry anything to Close.
func telling() bool {
	callers := make([]uintptr, 64)
	n := runtime.Callers(0, callers)
	for ; n == len(callers); n = runtime.Callers(0, callers) {
		callers = make([]uintptr, 2*len(callers))
	}
	frames := runtime.CallersFrames(callers[:n])
	for {
		frame, more := frames.Next()
		if frame.Function == tellName || !more {
			return frame.Function == tellName
		}
	}
}

// alarm tells when a wait that begins now is long.
func (o *Observer) alarm() (long <-chan time.Time, stop func()) {
	if o == nil || o.Waiting == nil {
		return nil, func() {}
	}
	timer := time.NewTimer(o.waitingAfter())
	return timer.C, func() { timer.Stop() }
}

// tellWaiting tells of the wait of w. If that panics, the wait is over.
func (c *cohort) tellWaiting(ctx context.Context, w *waiter, begun time.Duration) {
	returned := false
	defer func() {
		if !returned {
			c.withdraw(w)
		}
	}()
	c.registry.options.observer.Waiting(ctx, c.wait(ctx, w.errand, begun))
	returned = true
}

// acquire takes the lock and tells of it.
func (o *Observer) acquire(ctx context.Context, c *cohort, m *Mutex, waits bool, take func(*cohort, context.Context, *Mutex) (*ownership, error)) (*Hold, error) {
	r := c.registry
	begun := r.now()
	var own *ownership
	returned := false
	defer func() {
		switch {
		case returned:
		case own != nil:
			own.first.Release()
		default:
			r.part(c)
		}
	}()
	own, err := take(c, ctx, m)
	if err == nil {
		o.acquired(ctx, own, begun)
		returned = true
		return &own.first, nil
	}
	returned = true
	r.part(c)
	if waits && o.Failed != nil {
		now := r.now()
		o.Failed(ctx, Failed{Path: c.key.path, At: r.at(now), Waited: now - begun, Err: err})
	}
	return nil, err
}

// A watched is what is kept of an ownership, or of permits, for the observer.
type watched struct {
	observer *Observer
	since    time.Duration         // on the clock of the leases
	ctx      context.Context       // of its acquisition
	stop     func() (stopped bool) // watching for its loss; nil if nobody does
	told     chan struct{}         // closed when its loss has been told
}

func (o *Observer) acquired(ctx context.Context, own *ownership, begun time.Duration) {
	c, w := own.cohort, own.watched
	w.ctx = ctx
	if o.Acquired != nil {
		o.Acquired(ctx, Acquired{
			Hold: &own.first, At: c.registry.at(w.since), Waited: w.since - begun, From: sources[own.source],
		})
	}
	if o.Lost != nil {
		w.watch(c.registry, own.grant.Context(), func(err error) { own.tellLoss(w, err) })
	}
}

// watch has the loss told that ends life, at once. When the registry is closed already, the release
// tells it.
func (w *watched) watch(r *Registry, life context.Context, told func(error)) {
	if !r.begin() {
		return
	}
	w.told = make(chan struct{})
	w.stop = context.AfterFunc(life, func() {
		defer r.tasks.Done()
		defer close(w.told)
		tell(func() { told(context.Cause(life)) })
	})
}

// unwatch ends that. It reports whether a loss has been or is being told.
func (w *watched) unwatch(r *Registry) (pending bool) {
	if w.stop == nil {
		return false
	}
	if w.stop() {
		r.tasks.Done()
		return false
	}
	return true
}

func (own *ownership) tellLoss(w *watched, err error) {
	r := own.cohort.registry
	w.observer.Lost(w.ctx, Lost{Hold: &own.first, At: r.at(r.now()), Err: err, Cause: LossCause(second.CauseOf(err))})
}

// releaseWatched is the release of an ownership of which an observer was told.
func (own *ownership) releaseWatched() error {
	c, w := own.cohort, own.watched
	r, o := c.registry, w.observer
	now := r.now()
	// Before the release: what becomes of a grant that is handed on is no loss of this hold.
	pending := w.unwatch(r)
	err := c.release(own)
	switch {
	case pending:
		<-w.told
	case o.Lost != nil && errors.Is(err, ErrLost):
		own.tellLoss(w, err)
	}
	if o.Released != nil {
		o.Released(w.ctx, Released{Hold: &own.first, At: r.at(now), Held: now - w.since, Err: err})
	}
	return err
}
