package command

import (
	"context"
	"errors"
	"time"
)

// lookTimeout bounds a read of a store that does not answer.
const lookTimeout = time.Minute

// look connects, and calls do to read locks, within lookTimeout.
func (in *invocation) look(ctx context.Context, do func(context.Context, *Locks) error) error {
	locks, err := in.dial(ctx, Options{})
	if err != nil {
		return err
	}
	defer locks.Close()
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	return in.lookFailure(do(ctx, locks))
}

// lookFailure gives separate exit statuses to servers that do not answer, to unsupported requests, and to other errors.
func (in *invocation) lookFailure(err error) error {
	signal := (*failure)(nil)
	switch {
	case err == nil || errors.As(err, &signal):
		return err
	case errors.Is(err, context.DeadlineExceeded), in.store.Unreachable(err):
		return fail(exitUnavailable, "%w", err)
	case errors.Is(err, errors.ErrUnsupported):
		return usage(err)
	}
	return err
}

// lockPath returns the only argument, if it is a valid lock path.
func (in *invocation) lockPath() (string, error) {
	path, err := in.path()
	if err != nil {
		return "", err
	}
	return path, usage(in.store.ValidatePath(path))
}

// pathOrRoot returns the only argument, or / if there is none.
func (in *invocation) pathOrRoot() (string, error) {
	if len(in.args) == 0 {
		return "/", nil
	}
	if path, err := in.path(); err != nil || path == "/" {
		return path, err
	}
	return in.lockPath()
}
