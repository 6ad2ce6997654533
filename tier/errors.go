package tier

import "github.com/tierlock/tierlock/zklock"

// The errors of package zklock, which errors.Is finds in what this package returns
// together with the ZooKeeper error below.
var (
	// ErrLocked is returned by TryAcquire when somebody else has the lock.
	ErrLocked = zklock.ErrLocked
	// ErrLost says that the lock was taken away while it was held.
	ErrLost = zklock.ErrLost
	// ErrReleased says that a hold was released before.
	ErrReleased = zklock.ErrReleased
	// ErrClosed says that the registry is closed.
	ErrClosed = zklock.ErrClosed
	// ErrSequenceExhausted says that a lock path is worn out; see package zklock.
	ErrSequenceExhausted = zklock.ErrSequenceExhausted
)
