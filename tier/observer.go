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

// An Observer has callbacks for events of the locks and permits of a registry. Use it for metrics, traces and alarms. Any of its functions
// may be nil.
//
// A callback runs in the goroutine of the call that caused the event, unless its comment says otherwise. No internal mutex is held during
// the callback. A slow callback delays only the call that caused the event: no lease, no connection and no other goroutine waits for the
// callback. While Acquired runs, the caller already holds the lock, so keep Acquired short.
//
// A callback may panic, call [runtime.Goexit], or call the registry, including [Registry.Close]. The package does not recover from a
// panic. If the program recovers, the lock is not left held: if Waiting or Acquired does not return, Acquire ends its wait or releases the
// lock. Caution: a callback deadlocks if it acquires the lock of its own event, or calls Shutdown.
//
// A callback gets the context that was passed to Acquire or TryAcquire. This context may have ended. To create a span of a wait, subtract
// Waited from At: this is the start of the wait. To create a span of a hold, subtract Held from At.
//
// For one hold the order is Waiting, Acquired, Lost, Released. Each of these callbacks is called at most once. Between different holds of a
// lock the order of calls is not defined: Acquired of the next hold may be called before Released of the previous hold. The times in the
// fields At are in order. There are no events for reentrant acquisitions and their releases. There is also no event when this process stops
// keeping an idle lock ([WithLinger]).
//
// The permits of one Acquire of a [Semaphore] are one event. In each event exactly one of Hold and Permits is not nil.
type Observer struct {
	// Waiting is called once for a wait that takes longer than WaitingAfter, by default a second.
	Waiting      func(ctx context.Context, w Wait)
	WaitingAfter time.Duration
	// Acquired is called when a lock or permits are acquired, before Acquire or TryAcquire returns.
	Acquired func(ctx context.Context, a AcquiredEvent)
	// Failed is called when a wait ended without the lock or the permits. Failed is not called for a TryAcquire.
	Failed func(ctx context.Context, f FailedEvent)
	// Lost is called when a lock, or one of the permits, is lost. Lost runs in a separate goroutine as soon as the loss is noticed. If only
	// the release notices the loss, Lost runs in Release.
	Lost func(ctx context.Context, l LostEvent)
	// Released is called before Release returns, if it released permits or the last of several nested holds. If Lost is still running,
	// Released is called after Lost.
	Released func(ctx context.Context, r ReleasedEvent)
	// Connection is called first with the current state of the connection to the store, and then for each change. All calls come from one
	// goroutine. Changes during a call are combined into one. Connection is not called if the program owns the connection (package dropin).
	Connection func(c ConnectionEvent)
}

// An AcquiredEvent describes the acquisition of a lock or of permits.
type AcquiredEvent struct {
	Path    string
	Hold    *Hold    // identifies the hold in later events; do not release it
	Permits *Permits // identifies the permits in later events; do not release them
	At      time.Time
	Waited  time.Duration
	From    Source // "" for permits
}

// A FailedEvent describes a wait that ended without a lock or permits.
type FailedEvent struct {
	Path   string
	At     time.Time
	Waited time.Duration
	Err    error // what Acquire returns
}

// A LostEvent describes the loss of a hold or of permits.
type LostEvent struct {
	Path    string
	Hold    *Hold
	Permits *Permits
	At      time.Time
	Err     error // wraps [ErrLost]
	Cause   LossCause
}

// A ReleasedEvent describes the release of a hold or of permits.
type ReleasedEvent struct {
	Path    string
	Hold    *Hold
	Permits *Permits
	At      time.Time // when Release was called
	Held    time.Duration
	Err     error // what Release returns
}

// A ConnectionEvent describes a change of the connection to the store.
type ConnectionEvent struct {
	State ConnectionState
	Away  time.Duration // how long there was no connection; set only if State is Connected
	Err   error         // why there is no connection, if the reason is known
}

// A ConnectionState is the state of the connection to the store.
type ConnectionState string

const (
	Connected ConnectionState = ConnectionState(second.Connected)
	Suspended ConnectionState = ConnectionState(second.Suspended) // no connection; locks are held until their lease ends
	Expired   ConnectionState = ConnectionState(second.Expired)   // the session has ended, and all locks are lost
)

// WithObserver registers callbacks for lock and semaphore events. The option may be given several times. All observers are then called one
// after the other, and the shortest WaitingAfter applies to all observers. It is an option of a registry: the methods of a lock that has
// it return an error.
func WithObserver(o Observer) Option {
	return option(func(all *options) {
		both := o
		if all.observer != nil {
			both = all.observer.and(o)
		}
		all.observer = &both
	})
}

// Observer.and returns an observer that calls the functions of o, and then those of p. The literal has no field names, so that the compiler
// reports a missing field.
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
					defer one.Connection(c) // deferred calls run in reverse order, and run even if the other call panics
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
		defer second(ctx, e) // deferred, so that it runs even if the first one panics
		first(ctx, e)
	}
}

// waitingAfter returns how long a wait may take before it is reported. If Waiting is nil, no wait is reported.
func (o Observer) waitingAfter() time.Duration {
	if o.Waiting == nil {
		return math.MaxInt64
	}
	return cmp.Or(max(o.WaitingAfter, 0), time.Second)
}

// follow reports changes of the connection to the observer.
func (r *Registry) follow() {
	if o := r.options.observer; o != nil && o.Connection != nil {
		r.second.Notify(func(c second.Connection) {
			r.call(func() { o.Connection(ConnectionEvent{State: ConnectionState(c.State), Away: c.Away, Err: c.Err}) })
		})
	}
}

// alarm returns a channel for a wait that begins now. The channel receives when the wait has to be reported.
func (o *Observer) alarm() (long <-chan time.Time) {
	if o == nil {
		return nil
	}
	return time.After(o.waitingAfter())
}

// The method failed returns err. It also reports err to the observer, unless err comes from a try.
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

// A watch reports the life of a hold, or of permits, to the observer.
type watch struct {
	AcquiredEvent
	registry *Registry
	ctx      context.Context       // the context of the acquisition
	since    time.Duration         // on the clock of the leases
	stop     func() (stopped bool) // ends the watching for a loss; nil if there is none

	mu   sync.Mutex // guards the fields below
	told bool       // the loss was reported
	then func()     // reports the release after the loss was reported; nil until the release
}

// The method watch returns the watch over a new hold or new permits. The wait started at begun, and the hold started at since.
func (r *Registry) watch(ctx context.Context, a AcquiredEvent, begun, since time.Duration) *watch {
	a.At, a.Waited = r.at(since), since-begun
	return &watch{AcquiredEvent: a, registry: r, ctx: ctx, since: since}
}

// The method acquired reports the acquisition. If life ends with a loss, the loss is reported at once; if the registry is closed already,
// the release reports it. If the observer panics or ends the goroutine, no caller gets the hold or the permits. In that case acquired
// releases them.
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

// lossTold is called after the observer has been informed of the loss.
func (w *watch) lossTold() {
	w.mu.Lock()
	w.told = true
	then := w.then
	w.mu.Unlock()
	if then != nil {
		then()
	}
}

// afterLoss runs f, which reports the release. If Lost is still running, f runs when Lost has returned.
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

// releasing is called before a release. It returns a function that reports the release; the caller calls that function after the release.
func (w *watch) releasing() (released func(error)) {
	if w == nil {
		return func(error) {}
	}
	r, o := w.registry, w.registry.options.observer
	now := r.now()
	// The watching ends before the release: the grant may be handed off, and a later loss of the grant is no loss of this hold.
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
		defer tell() // deferred, so that it runs even if Lost panics
		if o.Lost != nil && errors.Is(err, ErrLost) {
			w.lost(now, err)
		}
	}
}
