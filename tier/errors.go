package tier

import "github.com/tierlock/tierlock/internal/second"

// The errors of all second tiers, which errors.Is finds in what this package returns together
// with the store's own error below.
var (
	// ErrLocked is returned by TryAcquire when somebody else has the lock.
	ErrLocked = second.ErrLocked
	// ErrLost says that the lock was taken away while it was held.
	ErrLost = second.ErrLost
	// ErrReleased says that a hold was released before.
	ErrReleased = second.ErrReleased
	// ErrClosed says that the registry is closed.
	ErrClosed = second.ErrClosed
)
