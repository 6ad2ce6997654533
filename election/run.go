package election

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/tier"
)

// If a term lasts for at least steady, the pause after it is short.
const steady = 10 * time.Second

// Run campaigns until ctx ends, and calls lead whenever this process becomes the leader. The context of lead ends when ctx ends or when
// the lock is lost. If the lock is lost, the context ends before another process can lead, with a cause that wraps [tier.ErrLost]. Run
// waits for lead to return, and then resigns.
//
// After lead has returned, Run resigns, pauses for 10 ms to 1.5 s, and queues again after all other candidates. Run discards the error of
// lead, so log the error inside lead. If lead returns [ErrStop], Run returns nil. If lead returns an error that wraps ErrStop, Run returns
// this error.
//
// Apart from ErrStop, Run returns an error only in three cases. First, ctx has ended; the error wraps the cause of ctx, and the error of
// lead if lead returned one. Second, the registry is closed ([tier.ErrClosed]). Third, the store refuses the process permanently, for
// example because of a missing permission. Run retries while the store cannot be reached. If lead panics, Run resigns and the panic
// continues. After Run has returned, this process does not lead. Its queue entry is deleted; if the store does not answer, this happens in
// the background.
//
// To end a program, cancel ctx and wait for Run before [tier.Registry.Shutdown] or Close. Shutdown waits
// for leaders and does not interrupt them.
//
// Caution: if lead ignores the end of its context, another process may lead while lead still runs. Several calls of Run in one process
// compete like processes, and one leads at a time. If lead calls Run with its own context, Run returns an error.
func (e *Election) Run(ctx context.Context, lead func(ctx context.Context, term int64) error) error {
	if tier.HoldFrom(ctx, e.mutex) != nil { // Run would lead at once, within the caller's own term
		return e.failure("run", errors.New("the context belongs to a leader of this election"))
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
		case led == ErrStop: //nolint:errorlint // an error that wraps ErrStop and says more is returned below
			return nil
		case errors.Is(led, ErrStop):
			return led
		case ctx.Err() != nil:
			return e.failure("run", endOf(ctx, led))
		}
		if time.Since(elected) >= steady {
			pace.Reset()
		}
		_ = retry.Pause(ctx, pace.NextBackOff()) // if ctx ends, the next campaign returns the reason
	}
}

// serve calls lead for one term, and then resigns. It returns the error of lead, and the error of the release. If that error says only that
// the lock was lost, serve does not return it.
func (e *Election) serve(ctx context.Context, hold *tier.Hold, lead func(context.Context, int64) error) (led, err error) {
	defer func() { // deferred, so that it runs even if lead panics
		e.term.Store(nil) // cleared before the release, because this process may lead the next term
		if err = hold.Release(); errors.Is(err, tier.ErrLost) {
			err = nil
		}
	}()
	t := &term{hold: hold, ctx: hold.Context(ctx)}
	if t.ctx.Err() != nil { // Hold.Context has just checked the clock: the lease may have run out since Acquire
		return nil, nil
	}
	e.term.Store(t)
	return lead(t.ctx, hold.Token()), nil
}

// endOf returns the reason for the end of ctx. If the error of lead is another error, endOf adds it.
func endOf(ctx context.Context, led error) error {
	cause := context.Cause(ctx)
	if led == nil || errors.Is(led, cause) || errors.Is(led, ctx.Err()) {
		return cause
	}
	return fmt.Errorf("%w: %w", cause, led)
}
