package election

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/tier"
)

// steady is how long a term has to last for the pause behind it to be short.
const steady = 10 * time.Second

// Run takes part in the election until ctx ends. Whenever this process leads, it calls lead, with
// the term and a context that ends with the term: when ctx ends, and when the lock is lost, with
// a cause that wraps [tier.ErrLost], before another process can lead. The context carries the hold
// of the lock. Run waits for lead to return, and only then resigns.
//
// When lead returns, with whatever error, the process resigns and campaigns again, behind all
// others that wait. Run drops the error; lead reports it where it is of interest. There is a pause
// before the next campaign, of 10 ms, which grows to a second and a half if lead keeps returning
// within ten seconds. If the error wraps [ErrStop], Run returns it, or nil if it is ErrStop itself.
//
// When ctx ends, Run returns an error that wraps its cause, and that of lead if it is another one.
// Run also returns when the store refuses the process for a reason that trying again cannot
// change, such as a lack of permission, and when the registry is closed. While the store cannot be
// reached it keeps trying. If lead panics, the process resigns, and the panic goes on. Whenever Run
// is over, this process does not lead and has left the queue; what cannot be removed at once is
// removed in the background. Whoever ends the program ends ctx and waits for Run before the registry
// is shut down or closed: a shutdown does not tell leaders, and waits for them.
//
// A lead that ignores the end of its context keeps this process from campaigning, but not others
// from leading: if the lock is lost, another process leads at the end of the lease, while that
// lead still runs. Several calls of Run compete like processes; one leads at a time. A lead
// that takes part in its own election gets an error.
func (e *Election) Run(ctx context.Context, lead func(ctx context.Context, term int64) error) error {
	if tier.HoldFrom(ctx, e.mutex) != nil { // it would lead at once, within its own term
		return e.failure("run", errors.New("the context is that of its leader"))
	}
	for pace := retry.New(); ; {
		hold, err := e.mutex.Acquire(ctx)
		if err != nil {
			return err
		}
		elected := time.Now()
		led, err := e.serve(ctx, hold, lead)
		switch {
		case err != nil:
			return errors.Join(err, led)
		case led == ErrStop: //nolint:errorlint // one that says more is returned
			return nil
		case errors.Is(led, ErrStop):
			return led
		case ctx.Err() != nil:
			return e.failure("run", endOf(ctx, led))
		}
		if time.Since(elected) >= steady {
			pace.Reset()
		}
		_ = retry.Pause(ctx, pace.NextBackOff()) // at the end of ctx the next campaign says why
	}
}

// serve has lead run for one term, and resigns. It returns the error of lead, and why this process
// could not resign, if that is not because the term was over.
func (e *Election) serve(ctx context.Context, hold *tier.Hold, lead func(context.Context, int64) error) (led, err error) {
	defer func() { // whatever lead does: a panic ends it as well
		e.term.Store(nil) // first: the next one can be this process
		if err = hold.Release(); errors.Is(err, tier.ErrLost) {
			err = nil
		}
	}()
	t := &term{hold: hold, ctx: hold.Context(ctx)}
	if t.ctx.Err() != nil { // it reads the clock, now
		return nil, nil
	}
	e.term.Store(t)
	return lead(t.ctx, hold.Token()), nil
}

// endOf is why ctx has ended, and what lead says if that is something else.
func endOf(ctx context.Context, led error) error {
	cause := context.Cause(ctx)
	if led == nil || errors.Is(led, cause) || errors.Is(led, ctx.Err()) {
		return cause
	}
	return fmt.Errorf("%w: %w", cause, led)
}
