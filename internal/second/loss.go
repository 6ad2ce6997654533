package second

import (
	"errors"
	"fmt"
)

// A LossCause says how a lock was lost.
type LossCause string

const (
	ByLease    LossCause = "lease"    // the lease ran out, because the store did not answer
	BySession  LossCause = "session"  // the store says that the session is over
	ByDeletion LossCause = "deletion" // the contender was deleted
	ByClose    LossCause = "close"    // the program closed everything
	ByOther    LossCause = "other"
)

// LossCauses are all possible causes.
var LossCauses = [...]LossCause{ByLease, BySession, ByDeletion, ByClose, ByOther}

// A loss is an error that wraps [ErrLost] and has a cause.
type loss struct {
	error
	cause LossCause
}

func (l loss) Unwrap() error { return l.error }

// Lost returns an error that wraps [ErrLost] and has the given cause. The formatted text follows the text of ErrLost.
func Lost(cause LossCause, format string, args ...any) error {
	return loss{fmt.Errorf("%w: "+format, append([]any{ErrLost}, args...)...), cause}
}

// CauseOf returns the cause of the loss that err reports.
func CauseOf(err error) LossCause {
	var l loss
	switch {
	case errors.Is(err, ErrClosed): // checked first, because Close ends the session, and err may also be a loss by that
		return ByClose
	case errors.As(err, &l):
		return l.cause
	}
	return ByOther
}
