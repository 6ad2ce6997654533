package second

import (
	"errors"
	"fmt"
)

// The errors of all tiers. The packages that return them document what they mean there.
var (
	ErrLocked         = errors.New("locked by another owner")
	ErrLost           = errors.New("lock lost")
	ErrReleased       = errors.New("lock already released")
	ErrClosed         = errors.New("locks closed")
	ErrTooManyPermits = errors.New("more permits wanted than there are")
	ErrUnknown        = errors.New("outcome unknown")

	ErrUnavailable = errors.New("store unavailable")
)

// NoToken is the error of a Break that finds no contender with the token.
func NoToken(token int64) error {
	return fmt.Errorf("no contender has token %d: %w", token, ErrReleased)
}

// Unavailable returns err as one that wraps [ErrUnavailable] as well, with the same text. Nil stays nil.
func Unavailable(err error) error {
	if err == nil || errors.Is(err, ErrUnavailable) || errors.Is(err, ErrClosed) {
		return err
	}
	return unavailable{err}
}

type unavailable struct{ error }

func (u unavailable) Unwrap() error { return u.error }

func (u unavailable) Is(target error) bool { return target == ErrUnavailable }
