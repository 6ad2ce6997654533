package zknode

import (
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/wire"
)

var (
	// ErrSequenceExhausted says that the sequence numbers of a lock path are used up, or nearly used up. They count all creations below the
	// path in 31 bits. From ZooKeeper 3.6 on, the counter stops at the last number. Two nodes would then have the same number, and both
	// would be first. Only a new parent node resets them. Package zknode creates a new parent if it can; see Sequence overflow in the
	// documentation of package zklock. Otherwise delete the path once it is empty, or use another path. A single child with a negative
	// number, or with the number of our node, also causes this error, which then names the child. Delete that child if no process owns it.
	ErrSequenceExhausted = errors.New("sequence numbers of the lock path exhausted")

	// ErrQuotaExceeded says that a quota of the lock path, or of a node above it, permits no lock node. The call is not retried. Raise the
	// quota (setquota in zkCli.sh), or delete children that are not needed.
	ErrQuotaExceeded error = wire.Code(wire.CodeQuotaExceeded)

	// ErrAnswerTooLong says that an answer, in practice a list of children, is longer than the 32 MiB that a client reads. The connection
	// stays open. The call is not retried: delete children, or use another path.
	ErrAnswerTooLong error = wire.Code(wire.CodeTooLong)
)

// errNotOurs says that this package may not delete a parent, because it did not create that parent.
var errNotOurs = errors.New("not ours to delete")

// An outcome says what is known about a request from the error of the ZooKeeper client.
type outcome int

const (
	done      outcome = iota // the request succeeded
	missing                  // the request was not applied, because the node or its parent does not exist
	refused                  // the request was not applied, and may succeed later
	permanent                // the request was not applied, and a retry would fail again
	unknown                  // the request may have been applied, because its answer was lost
)

// classify determines from err whether a request was executed. If an error is not known, the outcome is unknown.
func classify(err error) outcome {
	switch {
	case err == nil:
		return done
	case errors.Is(err, zk.ErrNoNode):
		return missing
	case errors.Is(err, zk.ErrNoServer), // an error of requests that were never sent
		errors.Is(err, zk.ErrSessionExpired): // the server checks the session before it applies a request
		return refused
	case errors.Is(err, second.ErrClosed), errors.Is(err, zk.ErrNoAuth), errors.Is(err, zk.ErrInvalidACL), errors.Is(err, zk.ErrAuthFailed),
		errors.Is(err, zk.ErrNoChildrenForEphemerals), errors.Is(err, zk.ErrBadArguments),
		errors.Is(err, zk.ErrInvalidPath), errors.Is(err, zk.ErrNodeExists), errors.Is(err, zk.ErrNotEmpty),
		errors.Is(err, zk.ErrBadVersion), errors.Is(err, errNotOurs):
		return permanent
	}
	var code wire.Code
	errors.As(wire.Named(err), &code)
	switch code {
	case wire.CodeUnimplemented, wire.CodeLocalSession, wire.CodeQuotaExceeded, wire.CodeTooLong:
		return permanent
	case wire.CodeThrottled:
		return refused
	}
	return unknown
}

// errGone says that a node was lost while it queued. The attempt has to start again at the tail of the queue.
var errGone = errors.New("lock node lost while queueing")
