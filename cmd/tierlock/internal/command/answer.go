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

// Remove asks for the removal of a contender of a path until there is an answer. If it is gone by then, it was this that did it.
func Remove(ctx context.Context, node, path string, refused func(error) bool, remove func() (bool, error)) (bool, error) {
	pace := retry.New()
	for again := false; ; again = true {
		removed, err := remove()
		switch {
		case err == nil:
			return removed || again, nil
		case refused(err):
			return false, fmt.Errorf("delete %s of %s: %w", node, path, err)
		case retry.Pause(ctx, pace.NextBackOff()) != nil:
			return false, fmt.Errorf("delete %s of %s: %w; it may yet be deleted", node, path, err)
		}
	}
}
