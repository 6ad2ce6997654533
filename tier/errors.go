package tier

import (
	"errors"

	"github.com/tierlock/tierlock/internal/second"
)

// Errors are wrapped; test for these with errors.Is. They are the same on every store, whose own
// error is wrapped beside them where there is one.
var (
	// ErrLocked is returned by TryAcquire when somebody else has the lock or waits for it, or the store
	// grants none: see [QuarantineError].
	ErrLocked = second.ErrLocked
	// ErrLost says that the lock was lost while it was held. It is final for that hold.
	ErrLost = second.ErrLost
	// ErrReleased says that the hold was released before.
	ErrReleased = second.ErrReleased
	// ErrClosed says that the registry is closed, or is being shut down.
	ErrClosed = second.ErrClosed
	// ErrUpgrade says that the lock was asked for to write with the context of a hold that reads.
	// Two that did so would wait for each other.
	ErrUpgrade = errors.New("a reader cannot become the writer: release the hold first")
	// ErrPermits says that a semaphore has another number of permits than the one it was asked for.
	ErrPermits = second.ErrPermits
	// ErrUnknown says that the outcome of a guarded write is unknown: it may have taken effect, or may yet,
	// but never after the lock went to another process. So it is on every store, with tierlock.Multi,
	// etcdlock.Txn, pglock.Tx and redislock.Eval, when the answer is lost or the context ends first, whose
	// cause is wrapped as well. A write that was refused is not unknown, and one that was refused because
	// the lock was lost wraps [ErrLost] alone.
	ErrUnknown = second.ErrUnknown
	// ErrWaitLimit says that the lock could not be had within the limit of [WithMaxWait].
	ErrWaitLimit = errors.New("wait limit reached")
)

// A QuarantineError says that the store grants no lock to anybody up to a time, its field Until, and why, its
// field Reason. A server that began anew, or took over from another one, may not know all who were granted a lock
// before: so it waits until they have lost it, for as long as the longest lease lasts. Locks that it knows to be
// held stay so. PostgreSQL and Redis have such times, ZooKeeper and etcd none.
//
// Get at it with errors.As, as a *QuarantineError, in the error of TryAcquire, which wraps [ErrLocked] as well, in
// that of [Registry.Err], and in a [*WaitError], which has it as a field, too.
type QuarantineError = second.QuarantineError
