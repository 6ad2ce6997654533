package second

import "errors"

// The errors of all tiers. The packages that return them say what they mean there.
var (
	ErrLocked   = errors.New("locked by another owner")
	ErrLost     = errors.New("lock lost")
	ErrReleased = errors.New("lock already released")
	ErrClosed   = errors.New("locks closed")
	ErrPermits  = errors.New("another number of permits")
	ErrUnknown  = errors.New("outcome unknown")
)
