package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/tierlock/tierlock/internal/retry"
)

// Answer repeats ask until a new connection answers or refuses, or ctx is done. If ctx is done first, the error has the failure of an
// earlier try, if there was one.
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

// WithCause adds to an error the reason why the wait for an answer has ended, if there is one.
func WithCause(ctx context.Context, why error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(why, cause) {
		return fmt.Errorf("%w: %w", cause, why)
	}
	return why
}
