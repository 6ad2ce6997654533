package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/internal/second"
)

// A claim is a handle that queues for the lock at path, or for permits of the semaphore at path.
type claim struct {
	tier    *Tier
	path    string
	mode    second.Mode
	given   int           // how many permits there are according to the program; 0 for a lock
	permits *atomic.Int64 // how many there are according to the store's newest answer; before the first answer, as given; nil for a lock
	linger  time.Duration // see [second.Options.MayLinger]
}

func (l *claim) Equal(other second.Claim) bool { return l.alike(other.(*claim)) }

// alike reports whether two claims are equal, except for the number of permits. Both learn that number from the store.
func (l *claim) alike(o *claim) bool {
	a, b := *l, *o
	a.permits, b.permits, a.given, b.given = nil, nil, min(a.given, 1), min(b.given, 1)
	return a == b
}

// ref returns a Ref to the queue of the claim, with the number of permits that this process knows.
func (l *claim) ref() Ref {
	r := Ref{Path: l.path, Reads: l.mode == second.Reading}
	if l.permits != nil {
		r.Permits = int(l.permits.Load())
	}
	return r
}

// learn stores the number of permits from an answer, unless that number is 0.
func (l *claim) learn(permits int) {
	if permits > 0 && l.permits != nil {
		l.permits.Store(int64(permits))
	}
}

// Acquire takes one command if no other contender blocks it.
func (l *claim) Acquire(ctx context.Context, w *second.Wait) (second.Grant, error) {
	return l.begin(ctx, "acquire", nil, w, nil, (*Contender).enter)
}

// TryAcquire takes one command, which writes nothing if the lock is taken.
func (l *claim) TryAcquire(ctx context.Context) (second.Grant, error) {
	return l.begin(ctx, try, nil, nil, nil, func(c, _ *Contender) error { return c.tryOnce(0) })
}

// Requeue takes one command, which removes the old contender and appends the new one.
func (l *claim) Requeue(ctx context.Context, grant second.Grant, w *second.Wait) (second.Grant, error) {
	old := grant.(*Contender)
	loss := old.giveUp()
	if errors.Is(loss, second.ErrReleased) {
		return nil, loss
	} else if loss != nil { // its removal may have begun; a second command must not remove it at the same time
		old.depart(Kept)
		return l.Acquire(ctx, w)
	}
	g, err := l.begin(ctx, "requeue", old, w, nil, (*Contender).enter)
	if err != nil {
		old.AwaitRelease() // otherwise the next acquisition would queue behind old
	}
	return g, err
}

const try = "try" // the operation that does not wait for the lock

// errGone means that a contender has lost its place in the queue. An Acquire then enters a new contender. A TryAcquire returns errGone.
var errGone = second.Unavailable(errors.New("the session has ended; a new one begins"))

// errRenumbered means that the store has a different number of permits than the contender named. A new contender has to enter with that
// number.
var errRenumbered = errors.New("the store has another number of permits")

// begin makes a contender enter the queue, and waits until it has the lock. If the contender loses its place, begin enters a new one. If
// old is not nil, the first contender replaces it.
//
// If ctx ends, the contender is removed as soon as its pending commands are answered. These commands are not cancelled, because it would
// then be unknown whether they are executed.
func (l *claim) begin(ctx context.Context, op string, old *Contender, w *second.Wait, d *second.Demand,
	enter func(c, old *Contender) error,
) (second.Grant, error) {
	pace, renumbered := retry.New(), 0
	for ; ; old = nil {
		if d != nil {
			l.awaitQuitter(ctx) // if ctx ends, enrol returns the error
		}
		c, err := l.enrol(ctx, op != try, old, enter)
		if err == nil {
			w.Tries(c.lastFailure)
			err = c.await(ctx, w, d)
		} else if old != nil {
			old.depart(Kept)
		}
		if err == nil {
			return c, nil
		}
		if errors.Is(err, errRenumbered) {
			if wanted, of := int(c.weight.Load()), l.ref().Permits; wanted > of {
				return nil, l.failure(op, tooMany(wanted, of))
			}
			renumbered++
			if renumbered > 2 && op == try { // the number changes again and again
				return nil, l.failure(op, second.Unavailable(err))
			}
			if renumbered > 2 {
				if err := retry.Pause(ctx, pace.NextBackOff()); err != nil {
					return nil, l.failure(op, l.tier.explain(err))
				}
			}
			continue
		}
		if op == try || c == nil || !c.IsLost() && !errors.Is(err, errGone) {
			return nil, l.failure(op, err)
		}
	}
}

// awaitQuitter waits until the last contender that stopped waiting for permits at the path is removed. It waits for a tenth of a second at
// most, because the answer may be lost. A process often stops waiting because its own goroutines release permits, which takes microseconds.
// Without awaitQuitter, its contenders would come faster than the store removes them.
func (l *claim) awaitQuitter(ctx context.Context) {
	if last, ok := l.tier.quitters.Load(l.path); ok {
		select {
		case <-last.(*Contender).released.C():
		case <-time.After(longest):
		case <-ctx.Done():
		}
	}
}

func (l *claim) failure(op string, err error) error {
	return fmt.Errorf("%s: %s %s: %w", l.tier.config.Package, op, l.path, err)
}

// Contenders takes one command.
func (l *claim) Contenders(ctx context.Context) ([]second.Contender, error) {
	a, err := l.request(ctx, List, "contenders of", l.ref())
	return a.Queue, err
}

// Load takes one command.
func (l *claim) Load(ctx context.Context) (second.Value, error) {
	a, err := l.request(ctx, Load, "load the value of", l.ref())
	if err == nil && a.Value == nil {
		err = l.failure("load the value of", second.ErrNoValue)
	}
	if err != nil {
		return second.Value{}, err
	}
	return *a.Value, nil
}

// Revoke asks the holders to release the lock. It does nothing if the lock is free.
func (l *claim) Revoke(ctx context.Context) error {
	_, err := l.request(ctx, Ask, "revoke", l.ref())
	return err
}

// Break takes one command to find the contender with the token, and one to remove it. The second command can be repeated, since no other
// contender has both its name and its token.
func (l *claim) Break(ctx context.Context, token int64) error {
	const breaking = "break"
	if there := l.tier.config.Elsewhere; there != "" {
		return l.failure(breaking, fmt.Errorf("Break does not work on these locks; use %s: %w", there, errors.ErrUnsupported))
	}
	r := l.ref()
	a, err := l.request(ctx, List, breaking, r)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(a.Queue, func(c second.Contender) bool { return c.Token == token })
	if i < 0 || token <= 0 { // waiters without a token yet have 0, and so have all contenders of other Redis libraries
		return l.failure(breaking, second.NoToken(token))
	}
	r.ID, r.Token = a.Queue[i].ID, token
	a, err = l.request(ctx, Leave, breaking, r)
	switch {
	case a.Begun && err != nil:
		return fmt.Errorf("%w: %w", second.ErrUnknown, err)
	case err == nil && a.Removed == Missing && !a.Begun:
		return l.failure(breaking, second.NoToken(token)) // the contender has left since it was listed
	}
	return err
}

// request sends a command about a queue until it is answered. It first waits for a session, unless the store opens none or does not answer.
// With a session, the process knows whether the store is in a grace period. The answer is Begun if any try of the command may have been
// executed, even in part.
func (l *claim) request(ctx context.Context, op Op, what string, about Ref) (a Answer, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.tier.ctx, func() { cancel(second.ErrClosed) })()
	l.tier.present(ctx, false)
	begun := false
	a, err = l.tier.repeat(ctx, func() Answer {
		a := l.tier.do(ctx, Command{Op: op, Ref: about})
		begun = begun || a.Outcome == Unknown || a.Begun
		return a
	})
	if a.Begun = begun; err != nil {
		return Answer{Begun: begun}, l.failure(what, err)
	}
	return a, nil
}
