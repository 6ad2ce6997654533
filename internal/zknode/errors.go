package zknode

import (
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/wire"
)

var (
	// ErrSequenceExhausted says that the sequence numbers of a lock path are (all but)
	// used up. They count all creations under the path in 31 bits, and from ZooKeeper
	// 3.6 on they stick at the last one, so that two nodes would both be first. Nothing
	// but a new parent node resets them, which the package sees to where it can; see
	// there, under Sequence overflow. Else delete the path once it is empty, or use another
	// one. A single child with a negative number or our own has the same effect; the
	// error names it, and if it is a stray one, deleting it helps.
	ErrSequenceExhausted = errors.New("sequence numbers of the lock path exhausted")

	// ErrQuotaExceeded says that a quota of the lock path, or of a node above it, leaves no room for a lock node. It is
	// final for that call. Raise the quota (setquota in zkCli.sh), or delete children that are not needed.
	ErrQuotaExceeded error = wire.Code(wire.CodeQuotaExceeded)

	// ErrAnswerTooLong says that an answer, in practice a list of children, is longer than the 32 MiB that a client reads. The
	// connection stays. It is final for that call: delete children, or use another path.
	ErrAnswerTooLong error = wire.Code(wire.CodeTooLong)
)

// errNotOurs says that this package may not delete a parent.
var errNotOurs = errors.New("not ours to delete")

// An outcome is what an error of the ZooKeeper client says about the request.
type outcome int

const (
	done      outcome = iota // answered with success
	missing                  // answered: the node (or the parent) does not exist
	refused                  // not applied, worth another try
	permanent                // not applied, and never will be as things stand
	unknown                  // may have been applied: the answer was lost
)

// classify determines from err whether a request was executed. Every error that is not known to be harmless is unknown.
func classify(err error) outcome {
	switch {
	case err == nil:
		return done
	case errors.Is(err, zk.ErrNoNode):
		return missing
	case errors.Is(err, zk.ErrNoServer), // only requests that were never written get it
		errors.Is(err, zk.ErrSessionExpired): // the server checks the session before it applies
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

// errGone says that a node was lost while it queued: start again at the tail.
var errGone = errors.New("lock node lost while queueing")
