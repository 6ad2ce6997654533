package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/tierlock/tierlock/internal/retry"
)

// Answer calls ask again and again, until a server answers or refuses, or until ctx ends. If ctx ends first, the error also has the failure
// of the last try, if there was one.
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

// WithCause returns why, the error of a wait for an answer. If ctx has ended, it adds the cause of ctx.
func WithCause(ctx context.Context, why error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(why, cause) {
		return fmt.Errorf("%w: %w", cause, why)
	}
	return why
}
