package command

import (
	"context"
	"errors"
	"time"
)

// lookTimeout limits the wait for a store that does not answer a read.
const lookTimeout = time.Minute

// The method look connects to the store, and calls do to read locks. Together, connecting and do may take lookTimeout.
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

// lookFailure returns a failure with an exit status. Servers that do not answer, unsupported requests, and other errors have different
// statuses.
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

// lockPath returns the only argument. If the argument is no valid lock path, it returns an error.
func (in *invocation) lockPath() (string, error) {
	path, err := in.path()
	if err != nil {
		return "", err
	}
	return path, usage(in.store.ValidatePath(path))
}

// pathOrRoot returns the only argument. If there is no argument, it returns /.
func (in *invocation) pathOrRoot() (string, error) {
	if len(in.args) == 0 {
		return "/", nil
	}
	if path, err := in.path(); err != nil || path == "/" {
		return path, err
	}
	return in.lockPath()
}
