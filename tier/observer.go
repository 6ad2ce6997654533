package tier

import (
	"cmp"
	"context"
	"errors"
	"math"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// An Observer is told what becomes of the locks and permits of a registry, for metrics, traces and
// alarms. Any of its functions may be nil.
//
// Each is called outside of all locks, in the goroutine that it is about, unless it says otherwise:
// one that is slow slows nobody but its caller. That caller may have the lock by then, so
// Acquired should be quick. They must not acquire or release the lock they are told of, nor shut the registry
// down, nor wait for another goroutine that closes it. A panic ends the process, as anywhere: nothing here recovers from it.
//
// The context is that of the call of Acquire or TryAcquire. It may have ended. For a trace, the
// events have what spans need, after the fact: a wait began Waited before At, a hold Held before
// At.
//
// For one hold the order is Waiting, Acquired, Lost, Released, each once at most. Between holds of
// a lock there is none: the next one may be acquired before Released is called for the one before.
// Their times, At, are in order.
//
// Entering again is no event, and neither is the release of any hold but the last. A grant that
// lingers is not held: its end is no event.
//
// All of this goes for permits, of a [Semaphore], as well: those of one Acquire are told together. What
// an event is about is its Hold or its Permits; the other one is nil.
type Observer struct {
	// Waiting tells once of a wait, for a lock or permits, that takes longer than WaitingAfter, by
	// default a second.
	Waiting      func(ctx context.Context, w Wait)
	WaitingAfter time.Duration
	// Acquired tells that a lock is held, or permits, before Acquire or TryAcquire returns.
	Acquired func(ctx context.Context, a AcquiredEvent)
	// Failed tells that a wait ended without the lock, or the permits. A TryAcquire does not wait: that it finds a
	// lock taken, or fails, is for its caller alone.
	Failed func(ctx context.Context, f FailedEvent)
	// Lost tells that a lock, or one of the permits, was lost while it was held, as soon as that is known, in a goroutine of
	// its own, or, if only the release finds out, there. Until it returns, Release does not.
	Lost func(ctx context.Context, l LostEvent)
	// Released tells that the last hold of an ownership was released, or permits, before Release returns.
	Released func(ctx context.Context, r ReleasedEvent)
	// Connection tells first how the connection to the store stands, then how that changes; all
	// from one goroutine. What changes during a call is told as one change. Over a connection made
	// elsewhere (package dropin) it is not known.
	Connection func(c ConnectionEvent)
}

// An AcquiredEvent is what an observer is told of a lock, or permits, that were acquired.
type AcquiredEvent struct {
	Path    string
	Hold    *Hold    // identifies the hold in what is told later; not to be released
	Permits *Permits // likewise
	At      time.Time
	Waited  time.Duration
	From    Source // "" for permits
}

// A FailedEvent is what an observer is told of a wait that ended without the lock, or the permits.
type FailedEvent struct {
	Path   string
	At     time.Time
	Waited time.Duration
	Err    error // what Acquire returns
}

// A LostEvent is what an observer is told of a hold that was lost, or of permits of which one was.
type LostEvent struct {
	Path    string
	Hold    *Hold
	Permits *Permits
	At      time.Time
	Err     error // wraps [ErrLost]
	Cause   LossCause
}

// A ReleasedEvent is what an observer is told of a hold that is over, or of permits that were released.
type ReleasedEvent struct {
	Path    string
	Hold    *Hold
	Permits *Permits
	At      time.Time // when Release was called
	Held    time.Duration
	Err     error // what Release returns
}

// A ConnectionEvent is what an observer is told of the connection to the store.
type ConnectionEvent struct {
	State ConnectionState
	Away  time.Duration // how long there was none; with Connected
	Err   error         // why there is none, if that is known
}

// A ConnectionState says how this process stands with the store.
type ConnectionState string

const (
	Connected ConnectionState = ConnectionState(second.Connected)
	Suspended ConnectionState = ConnectionState(second.Suspended) // no connection; what is held may be kept
	Expired   ConnectionState = ConnectionState(second.Expired)   // the session is over, and all that was held is lost
)

// WithObserver has an observer told of all locks and permits of a registry. It may be given more than once: the
// observers are told one after the other, and the shortest WaitingAfter goes for all.
func WithObserver(o Observer) Option {
	return with(func(all *options) {
		both := o
		if all.observer != nil {
			both = all.observer.and(o)
		}
		all.observer = &both
	})
}

// and returns an observer that tells o, then p. The fields have no names here, so that none can be forgotten.
func (o Observer) and(p Observer) Observer {
	return Observer{
		inTurn(o.Waiting, p.Waiting),
		min(o.waitingAfter(), p.waitingAfter()),
		inTurn(o.Acquired, p.Acquired),
		inTurn(o.Failed, p.Failed),
		inTurn(o.Lost, p.Lost),
		inTurn(o.Released, p.Released),
		func(c ConnectionEvent) {
			for _, one := range []Observer{o, p} {
				if one.Connection != nil {
					one.Connection(c)
				}
			}
		},
	}
}

func inTurn[Event any](first, second func(context.Context, Event)) func(context.Context, Event) {
	if first == nil {
		return second
	}
	if second == nil {
		return first
	}
	return func(ctx context.Context, e Event) {
		first(ctx, e)
		second(ctx, e)
	}
}

// waitingAfter is for how long somebody waits before it is told, never if nobody wants to know.
func (o Observer) waitingAfter() time.Duration {
	if o.Waiting == nil {
		return math.MaxInt64
	}
	return cmp.Or(max(o.WaitingAfter, 0), time.Second)
}

// follow has the observer told of the connection.
func (o *Observer) follow(t second.Tier) {
	if o != nil && o.Connection != nil {
		t.Notify(func(c second.Connection) {
			tell(func() { o.Connection(ConnectionEvent{State: ConnectionState(c.State), Away: c.Away, Err: c.Err}) })
		})
	}
}

// tell calls an observer, or what may call one, in a goroutine whose end Close waits for. It is on the stack of a Close from there: what
// an observer is told need not carry anything to that.
//
//go:noinline
func tell(f func()) { f() }

// alarm tells when a wait that begins now is long.
func (o *Observer) alarm() (long <-chan time.Time) {
	if o == nil {
		return nil
	}
	return time.After(o.waitingAfter())
}

// failed returns err, and tells of it unless it is that of a try.
func (r *Registry) failed(ctx context.Context, op, path string, begun time.Duration, err error) error {
	if o := r.options.observer; o != nil && o.Failed != nil && op == "acquire" {
		now := r.now()
		o.Failed(ctx, FailedEvent{Path: path, At: r.at(now), Waited: now - begun, Err: err})
	}
	return err
}

// A watch is what is kept of a hold, or of permits, for the observer.
type watch struct {
	AcquiredEvent
	registry *Registry
	ctx      context.Context       // of its acquisition
	since    time.Duration         // on the clock of the leases
	stop     func() (stopped bool) // watching for its loss; nil if nobody does
	told     chan struct{}         // closed when its loss has been told
}

// watch tells of what was acquired, and has the loss told that ends life, at once. When the registry is
// closed already, the release tells it.
func (r *Registry) watch(ctx context.Context, a AcquiredEvent, begun, since time.Duration, life context.Context) *watch {
	o := r.options.observer
	a.At, a.Waited = r.at(since), since-begun
	w := &watch{AcquiredEvent: a, registry: r, ctx: ctx, since: since}
	if o.Acquired != nil {
		o.Acquired(ctx, a)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if o.Lost != nil && !r.closed {
		r.tasks.Add(1)
		w.told = make(chan struct{})
		w.stop = context.AfterFunc(life, func() {
			defer r.tasks.Done()
			defer close(w.told)
			tell(func() { w.lost(r.now(), context.Cause(life)) })
		})
	}
	return w
}

func (w *watch) lost(now time.Duration, err error) {
	r := w.registry
	r.options.observer.Lost(w.ctx, LostEvent{w.Path, w.Hold, w.Permits, r.at(now), err, LossCause(second.CauseOf(err))})
}

// releasing is called before a release, and what it returns after that: to tell of it, if anybody is to be told.
func (w *watch) releasing() (released func(error)) {
	if w == nil {
		return func(error) {}
	}
	r, o := w.registry, w.registry.options.observer
	now := r.now()
	// Before the release: what becomes of a grant that is handed off is no loss of this hold.
	untold := w.stop == nil || w.stop()
	if untold && w.stop != nil {
		r.tasks.Done()
	}
	return func(err error) {
		switch {
		case !untold:
			<-w.told
		case o.Lost != nil && errors.Is(err, ErrLost):
			w.lost(now, err)
		}
		if o.Released != nil {
			o.Released(w.ctx, ReleasedEvent{w.Path, w.Hold, w.Permits, r.at(now), now - w.since, err})
		}
	}
}
