package command

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/zklock"
)

// lookTimeout is for a look at an ensemble that does not answer.
const lookTimeout = time.Minute

// look connects, and has do look at locks, for so long at most.
func (in *invocation) look(ctx context.Context, do func(context.Context, *zklock.Client) error) error {
	client, err := in.zk.client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	return lookFailure(do(ctx, client))
}

// lookFailure tells servers that do not answer from what will not get better.
func lookFailure(err error) error {
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, zk.ErrNoServer):
		return fail(exitUnavailable, "%w", err)
	case errors.Is(err, zk.ErrInvalidPath):
		return usageError("%w", err)
	}
	return err
}

// lockPath returns the only argument, if it can be a lock.
func (in *invocation) lockPath() (string, error) {
	path, err := in.path()
	if err != nil {
		return "", err
	}
	return path, validate(path)
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
