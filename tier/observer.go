package tier

import (
	"context"
	"math"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// An Observer is told what becomes of the locks and permits of a registry, for metrics, traces and
// alarms. Any of its functions may be nil.
//
// Each is called outside of all locks, in the goroutine that it is about, unless it says otherwise:
// one that is slow slows nobody but its caller. That caller may have the lock by then, so
// Acquired should be quick. They must not acquire or release the lock they are told of, nor wait for another
// goroutine that closes the registry. A panic is
// the caller's; a lock that was about to be acquired is given back.
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
// All of this goes for permits, of a [Semaphore], as well: those of one Acquire are told together.
type Observer struct {
	// Waiting tells once of a wait, for a lock or permits, that takes longer than WaitingAfter, by
	// default a second.
	Waiting      func(ctx context.Context, w Wait)
	WaitingAfter time.Duration
	// Acquired tells that a lock is held, before Acquire or TryAcquire returns.
	Acquired func(ctx context.Context, a Acquired)
	// Failed tells that a wait ended without the lock, or the permits. A TryAcquire does not wait: that it finds a
	// lock taken, or fails, is for its caller alone.
	Failed func(ctx context.Context, f Failed)
	// Lost tells that a lock was lost while it was held, as soon as that is known, in a goroutine of
	// its own, or, if only the release finds out, there. Until it returns, Release does not.
	Lost func(ctx context.Context, l Lost)
	// Released tells that the last hold of an ownership was released, before Release returns.
	Released func(ctx context.Context, r Released)
	// What Acquired, Lost and Released are for a lock.
	PermitsAcquired func(ctx context.Context, a PermitsAcquired)
	PermitsLost     func(ctx context.Context, l PermitsLost)
	PermitsReleased func(ctx context.Context, r PermitsReleased)
	// Connection tells first how the connection to the store stands, then how that changes; all
	// from one goroutine. What changes during a call is told as one change. Over a connection made
	// elsewhere (package dropin) it is not known.
	Connection func(c Connection)
}

// Acquired is what an observer is told of a lock that was acquired.
type Acquired struct {
	Hold   *Hold // identifies the hold in what is told later; not to be released
	At     time.Time
	Waited time.Duration
	From   Source
}

// Failed is what an observer is told of a wait that ended without the lock, or the permits.
type Failed struct {
	Path   string
	At     time.Time
	Waited time.Duration
	Err    error // what Acquire returns
}

// Lost is what an observer is told of a hold that was lost.
type Lost struct {
	Hold  *Hold
	At    time.Time
	Err   error // wraps [ErrLost]
	Cause LossCause
}

// Released is what an observer is told of a hold that is over.
type Released struct {
	Hold *Hold
	At   time.Time // when Release was called
	Held time.Duration
	Err  error // what Release returns
}

// PermitsAcquired is what an observer is told of permits that were acquired.
type PermitsAcquired struct {
	Permits *Permits // identifies them in what is told later; not to be released
	At      time.Time
	Waited  time.Duration
}

// PermitsLost is what an observer is told of permits of which one was lost.
type PermitsLost struct {
	Permits *Permits
	At      time.Time
	Err     error // wraps [ErrLost]
	Cause   LossCause
}

// PermitsReleased is what an observer is told of permits that were released.
type PermitsReleased struct {
	Permits *Permits
	At      time.Time // when Release was called
	Held    time.Duration
	Err     error // what Release returns
}

// A Connection is what an observer is told of the connection to the store.
type Connection struct {
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
	return func(all *options) {
		both := o
		if all.observer != nil {
			both = all.observer.and(o)
		}
		all.observer = &both
	}
}

// and returns an observer that tells o, then p.
func (o Observer) and(p Observer) Observer {
	return Observer{
		Waiting:      inTurn(o.Waiting, p.Waiting),
		WaitingAfter: min(o.waitingAfter(), p.waitingAfter()),
		Acquired:     inTurn(o.Acquired, p.Acquired),
		Failed:       inTurn(o.Failed, p.Failed),
		Lost:         inTurn(o.Lost, p.Lost),
		Released:     inTurn(o.Released, p.Released),

		PermitsAcquired: inTurn(o.PermitsAcquired, p.PermitsAcquired),
		PermitsLost:     inTurn(o.PermitsLost, p.PermitsLost),
		PermitsReleased: inTurn(o.PermitsReleased, p.PermitsReleased),

		Connection: func(c Connection) {
			for _, tell := range []func(Connection){o.Connection, p.Connection} {
				if tell != nil {
					tell(c)
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
	switch {
	case o.Waiting == nil:
		return math.MaxInt64
	case o.WaitingAfter <= 0:
		return time.Second
	}
	return o.WaitingAfter
}
