package second

import (
	"errors"
	"fmt"
)

// A LossCause says how a lock was lost.
type LossCause string

const (
	ByLease    LossCause = "lease"    // it ran out, as the store was not heard from
	BySession  LossCause = "session"  // the store says that the session is over
	ByDeletion LossCause = "deletion" // the contender was deleted
	ByClose    LossCause = "close"    // the program closed everything
	ByOther    LossCause = "other"
)

// LossCauses are all possible causes.
var LossCauses = [...]LossCause{ByLease, BySession, ByDeletion, ByClose, ByOther}

// A loss is an error that wraps [ErrLost] and knows the cause.
type loss struct {
	error
	cause LossCause
}

func (l loss) Unwrap() error { return l.error }

// Lost returns an error that wraps [ErrLost] and goes on with a formatted text.
func Lost(cause LossCause, format string, args ...any) error {
	return loss{fmt.Errorf("%w: "+format, append([]any{ErrLost}, args...)...), cause}
}

// CauseOf returns the cause of the loss that err reports.
func CauseOf(err error) LossCause {
	var l loss
	switch {
	case errors.Is(err, ErrClosed): // whatever that has ended first
		return ByClose
	case errors.As(err, &l):
		return l.cause
	}
	return ByOther
}
