package etcdlock

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tierlock/tierlock/internal/second"
)

// An outcome is what the error of a request says about it.
type outcome int

const (
	done      outcome = iota // answered with success
	leaseGone                // not applied: the server does not know the etcd lease any more
	permanent                // not applied, and never will be as things stand
	uncertain                // may have been applied, or may yet be
)

// classify tells what became of a request that ended with err. Whatever is not known to be
// harmless is uncertain: a server answers "request timed out" to what it may apply later.
func classify(err error) outcome {
	switch {
	case err == nil:
		return done
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return leaseGone
	case errors.Is(err, rpctypes.ErrAuthOldRevision): // permissions have just changed: worth another try
		return uncertain
	case errors.Is(err, rpctypes.ErrNoSpace):
		return permanent
	}
	switch codeOf(err) {
	case codes.PermissionDenied, codes.InvalidArgument, codes.OutOfRange, codes.Unimplemented:
		return permanent
	}
	return uncertain
}

// answered reports whether etcd has said something, be it that it refuses.
func answered(err error) bool {
	if err == nil {
		return true
	}
	switch codeOf(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Unknown:
		return false
	}
	return true
}

func codeOf(err error) codes.Code {
	var refusal rpctypes.EtcdError
	switch {
	case errors.As(err, &refusal):
		return refusal.Code()
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		return codes.Canceled
	}
	return status.Code(err)
}

// errGone says that a contender has lost its place in the queue and has to start again.
var errGone = errors.New("place in the queue lost")

func deleted(key string) error { return second.Lost(second.ByDeletion, "key %s was deleted", key) }
