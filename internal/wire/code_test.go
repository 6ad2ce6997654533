package wire_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/wire"
)

// serverCodes are the codes of KeeperException in ZooKeeper 3.9.
var serverCodes = []int32{
	-1, -2, -3, -4, -5, -6, -7, -8, -9, -12, -13, -14, -100, -101, -102, -103, -108, -110, -111, -112, -113, -114, -115, -118, -119, -120,
	-121, -122, -123, -124, -125, -127,
}

func TestEachCodeOfAServerHasAnErrorOfItsOwn(t *testing.T) {
	known := map[error]bool{}
	for _, code := range serverCodes {
		err := wire.CodeError(code)
		need.That(t, fmt.Sprintf("%d has the error of another one: %v", code, err), err != nil && !known[err])
		known[err] = true
		named := err.Error() != wire.Code(-99).Error() && err.Error() != fmt.Sprintf("zk: unknown error (%d)", code)
		need.That(t, fmt.Sprintf("%d is %v", code, err), named)
	}
	need.Equal(t, "a code of the future", fmt.Sprint(wire.CodeError(-300)), "zk: unknown error (-300)")
	need.OK(t, wire.CodeError(wire.CodeOK))
}

// For some codes, the client library has only a number. The error then gets the name of the code.
func TestUnknownErrorsOfTheClientLibraryAreNamed(t *testing.T) {
	cause := errors.New("unknown error: -125")
	err := wire.Named(fmt.Errorf("create /x: %w", cause))
	for _, want := range []error{cause, wire.Code(wire.CodeQuotaExceeded)} {
		wantErr(t, "a number", err, want)
	}
	wantMention(t, err, "create /x: zk: QuotaExceeded", "-125")
	for _, err := range []error{nil, zk.ErrNoNode, errors.New("unknown error: yes"), errors.New("unknown error: -125 and more")} {
		need.Equal(t, fmt.Sprintf("named: %v", err), wire.Named(err), err)
	}
}

// A refusal is an answer that depends on the request itself. Other failures may go away a moment later.
func TestRefusalIsAnAnswerAboutTheRequest(t *testing.T) {
	for _, err := range []error{zk.ErrNoAuth, zk.ErrNodeExists, zk.ErrBadArguments, wire.Code(wire.CodeQuotaExceeded)} {
		need.That(t, fmt.Sprintf("no refusal: %v", err), wire.Refuses(fmt.Errorf("wrapped: %w", err)))
	}
	for _, err := range []error{
		zk.ErrConnectionClosed, zk.ErrNoServer, zk.ErrSessionExpired, zk.ErrSessionMoved, wire.Code(wire.CodeThrottled), errors.New("else"),
	} {
		need.That(t, fmt.Sprintf("a refusal: %v", err), !wire.Refuses(fmt.Errorf("wrapped: %w", err)))
	}
}

var wantErr, wantMention = need.WantErr, need.WantMention
