package zklock

import (
	"errors"
	"fmt"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/wire"
)

// What is not known to be harmless may have been applied.
func TestWhatAnErrorSaysOfItsRequest(t *testing.T) {
	coded := func(code int) error { return fmt.Errorf("unknown error: %d", code) } // as the library says it
	for want, errs := range map[outcome][]error{
		done:    {nil},
		missing: {zk.ErrNoNode},
		refused: {zk.ErrNoServer, zk.ErrSessionExpired, coded(wire.CodeThrottled)},
		permanent: {ErrClosed, errNotOurs, zk.ErrNoAuth, zk.ErrInvalidACL, zk.ErrAuthFailed, zk.ErrNoChildrenForEphemerals,
			zk.ErrBadArguments, zk.ErrInvalidPath, zk.ErrNodeExists, zk.ErrNotEmpty, zk.ErrBadVersion,
			coded(wire.CodeUnimplemented), coded(wire.CodeLocalSession), coded(wire.CodeQuotaExceeded)},
		unknown: {zk.ErrConnectionClosed, zk.ErrClosing, coded(-1), errors.New("something new")},
	} {
		for _, err := range errs {
			if got := classify(err); got != want {
				t.Errorf("%v: got %d, want %d", err, got, want)
			}
			if err == nil {
				continue
			}
			if got := classify(fmt.Errorf("of a request: %w", err)); got != want {
				t.Errorf("%v, wrapped: got %d, want %d", err, got, want)
			}
		}
	}
}
