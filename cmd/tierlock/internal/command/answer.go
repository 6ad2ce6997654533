package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/tierlock/tierlock/internal/retry"
)

// Answer asks a store that is being connected to until it answers, refuses, or ctx is done. The error says why there is
// no answer, as far as a try has told that before ctx was done.
func Answer(ctx context.Context, refused func(error) bool, ask func() error) error {
	var why error
	for pace := retry.New(); ; {
		err := ask()
		if err == nil {
			return nil
		}
		if why == nil || ctx.Err() == nil {
			why = err
		}
		if refused(err) || retry.Pause(ctx, pace.NextBackOff()) != nil {
			return WithCause(ctx, why)
		}
	}
}

// WithCause adds to why there is no answer what has ended the wait for it, if anything has.
func WithCause(ctx context.Context, why error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(why, cause) {
		return fmt.Errorf("%w: %w", cause, why)
	}
	return why
}
