package tier

import (
	"cmp"
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// An Observer is told what becomes of the locks and permits of a registry, for metrics, traces and
// alarms. Any of its functions may be nil.
//
// The registry calls each function without holding a mutex, in the goroutine of the call that the event is about, unless
// its comment says otherwise. A slow function delays that caller and nothing else: no lease, no connection
// and no other goroutine waits for it. The caller may have the lock by then, so Acquired should be quick.
//
// A function may panic, call [runtime.Goexit], or call the registry; [Registry.Close], too. Nothing recovers from a panic here.
// If the program does, the lock is free: when Waiting or Acquired does not return, Acquire gives
// up the wait, or what it has got. Caution: a function that acquires the lock of its own event, or shuts the registry down, waits
// for itself.
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
	// its own, or, if only the release finds out, there.
	Lost func(ctx context.Context, l LostEvent)
	// Released tells that the last hold of an ownership was released, or permits, before Release returns; or, if Lost is still
	// at work then, right after that.
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
	return option(func(all *options) {
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
			for _, one := range []Observer{p, o} {
				if one.Connection != nil {
					defer one.Connection(c) // in reverse, and whatever the first one does
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
		defer second(ctx, e) // whatever the first one does
		first(ctx, e)
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
func (r *Registry) follow() {
	if o := r.options.observer; o != nil && o.Connection != nil {
		r.second.Notify(func(c second.Connection) {
			r.call(func() { o.Connection(ConnectionEvent{State: ConnectionState(c.State), Away: c.Away, Err: c.Err}) })
		})
	}
}

// alarm tells when a wait that begins now is long.
func (o *Observer) alarm() (long <-chan time.Time) {
	if o == nil {
		return nil
	}
	return time.After(o.waitingAfter())
}

// failed returns err, and tells of it unless it is that of a try.
func (r *Registry) failed(ctx context.Context, op, path string, begun time.Duration, err error) error {
	if q := (*second.GracePeriodError)(nil); errors.As(err, &q) {
		err = inGracePeriod{err, (*GracePeriodError)(q)}
	}
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

	mu   sync.Mutex // guards the fields below
	told bool       // of its loss
	then func()     // tells of the release after that; nil if there is none yet
}

// watch returns what is kept of what was acquired.
func (r *Registry) watch(ctx context.Context, a AcquiredEvent, begun, since time.Duration) *watch {
	a.At, a.Waited = r.at(since), since-begun
	return &watch{AcquiredEvent: a, registry: r, ctx: ctx, since: since}
}

// acquired tells of what was acquired, and has the loss told that ends life, at once. When the registry is
// closed already, the release tells it. If the observer panics, or ends the goroutine, nobody has what was acquired, so it is released.
func (w *watch) acquired(life context.Context, release func() error) {
	r, o, told := w.registry, w.registry.options.observer, false
	defer func() {
		if !told {
			release()
		}
	}()
	if o.Acquired != nil {
		o.Acquired(w.ctx, w.AcquiredEvent)
	}
	told = true
	r.mu.Lock()
	defer r.mu.Unlock()
	if o.Lost != nil && !r.closed {
		r.tasks.Add(1)
		w.stop = context.AfterFunc(life, func() {
			defer r.tasks.Done()
			defer w.lossTold()
			w.lost(r.now(), context.Cause(life))
		})
	}
}

// lossTold follows the call that tells of the loss.
func (w *watch) lossTold() {
	w.mu.Lock()
	w.told = true
	then := w.then
	w.mu.Unlock()
	if then != nil {
		then()
	}
}

// afterLoss runs f, which tells of the release, unless Lost is at work: then it is run after that.
func (w *watch) afterLoss(f func()) {
	w.mu.Lock()
	told := w.told
	w.then = f
	w.mu.Unlock()
	if told {
		f()
	}
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
		tell := func() {
			if o.Released != nil {
				o.Released(w.ctx, ReleasedEvent{w.Path, w.Hold, w.Permits, r.at(now), now - w.since, err})
			}
		}
		if !untold {
			w.afterLoss(tell)
			return
		}
		defer tell() // also if Lost panics
		if o.Lost != nil && errors.Is(err, ErrLost) {
			w.lost(now, err)
		}
	}
}
