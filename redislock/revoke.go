package redislock

import (
	"context"
	"errors"
	"fmt"
)

// Revoke has those that have the lock know, in one write, that they are asked for it. It is nothing
// if nobody has the lock.
//
// A lock of another library cannot be asked for: the error then wraps [errors.ErrUnsupported].
func (l *claim) Revoke(ctx context.Context) error {
	words, err := l.insist(ctx, "revoke")
	if err == nil && len(words) == 1 {
		err = fmt.Errorf("the key is not of this package, and its owner would not hear of it: %w", errors.ErrUnsupported)
	}
	if err != nil {
		return l.failure("revoke", err)
	}
	return nil
}
