package second

import (
	"errors"
	"fmt"
)

// These are the errors of all tiers. Each package that returns one documents its meaning there.
var (
	ErrLocked         = errors.New("locked by another owner")
	ErrLost           = errors.New("lock lost")
	ErrReleased       = errors.New("lock already released")
	ErrClosed         = errors.New("locks closed")
	ErrTooManyPermits = errors.New("more permits requested than the semaphore has")
	ErrUnknown        = errors.New("outcome unknown")

	ErrUnavailable = errors.New("store unavailable")
)

// NoToken is the error of a Break that finds no contender with the token.
func NoToken(token int64) error {
	return fmt.Errorf("no contender has token %d: %w", token, ErrReleased)
}

// Unavailable returns an error with the text of err that wraps both err and [ErrUnavailable]. If err is nil, Unavailable returns nil. An
// error that wraps [ErrClosed] stays as it is.
func Unavailable(err error) error {
	if err == nil || errors.Is(err, ErrUnavailable) || errors.Is(err, ErrClosed) {
		return err
	}
	return unavailable{err}
}

type unavailable struct{ error }

func (u unavailable) Unwrap() error { return u.error }

func (u unavailable) Is(target error) bool { return target == ErrUnavailable }
