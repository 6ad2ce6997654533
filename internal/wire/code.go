package wire

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"
)

// These are the error codes of replies.
const (
	CodeOK                      = 0
	CodeRuntimeInconsistency    = -2
	CodeMarshallingError        = -5
	CodeUnimplemented           = -6
	CodeOperationTimeout        = -7
	CodeBadArguments            = -8
	CodeNoNode                  = -101
	CodeNoAuth                  = -102
	CodeBadVersion              = -103
	CodeNoChildrenForEphemerals = -108
	CodeNodeExists              = -110
	CodeNotEmpty                = -111
	CodeSessionExpired          = -112
	CodeInvalidACL              = -114
	CodeAuthFailed              = -115
	CodeSessionMoved            = -118
	CodeLocalSession            = -120 // ephemerals are not allowed on a local session
	CodeNoWatcher               = -121
	CodeQuotaExceeded           = -125
	CodeThrottled               = -127 // refused before it was executed
)

// CodeTooLong is sent by no server. If an answer is too long, the reader of frames replaces it by an answer with this code.
const CodeTooLong = -1000

// Errors has the errors of the client library. The key is the code.
var Errors = map[int32]error{
	CodeBadArguments:            zk.ErrBadArguments,
	CodeNoNode:                  zk.ErrNoNode,
	CodeNoAuth:                  zk.ErrNoAuth,
	CodeBadVersion:              zk.ErrBadVersion,
	CodeNoChildrenForEphemerals: zk.ErrNoChildrenForEphemerals,
	CodeNodeExists:              zk.ErrNodeExists,
	CodeNotEmpty:                zk.ErrNotEmpty,
	CodeSessionExpired:          zk.ErrSessionExpired,
	CodeInvalidACL:              zk.ErrInvalidACL,
	CodeAuthFailed:              zk.ErrAuthFailed,
	CodeSessionMoved:            zk.ErrSessionMoved,
	-100:                        zk.ErrAPIError,
	-116:                        zk.ErrClosing,
	-117:                        zk.ErrNothing,
	-123:                        zk.ErrReconfigDisabled,
}

// A Code is the error for a code to which no error of the client library belongs.
type Code int32

// The map codeTexts says what these codes mean, and what a client can do about them. The names are those of KeeperException in ZooKeeper
// 3.9.
var codeTexts = map[Code]string{
	-1:                       "SystemError: the server failed",
	CodeRuntimeInconsistency: "RuntimeInconsistency: another operation of the transaction was refused",
	-3:                       "DataInconsistency",
	-4:                       "ConnectionLoss: the server has lost the connection to its leader",
	CodeMarshallingError:     "MarshallingError: the server cannot read the request",
	CodeUnimplemented:        "Unimplemented: the server does not know this type of request",
	CodeOperationTimeout:     "OperationTimeout",
	-9:                       "InvalidState",
	-12:                      "UnknownSession",
	-13:                      "NewConfigNoQuorum",
	-14:                      "ReconfigInProgress",
	-113:                     "InvalidCallback",
	-119:                     "NotReadOnly: the server is cut off from its ensemble and takes no writes",
	CodeLocalSession:         "EphemeralOnLocalSession: locks need servers without localSessionsEnabled",
	CodeNoWatcher:            "NoWatcher",
	-122:                     "RequestTimeout",
	-124:                     "SessionClosedRequireSaslAuth: the server wants clients to authenticate first",
	CodeQuotaExceeded:        "QuotaExceeded: the quota of the path or of a parent path is used up (see setquota and listquota)",
	CodeThrottled:            "ThrottledOp: the server is overloaded and has not executed the request",
	CodeTooLong:              "the answer is longer than the 32 MiB that a client reads",
}

func (c Code) Error() string {
	text, ok := codeTexts[c]
	if !ok {
		text = "unknown error"
	}
	return fmt.Sprintf("zk: %s (%d)", text, int32(c))
}

// CodeError returns the error for a code. If the client library has no error for the code, the result is a [Code].
func CodeError(code int32) error {
	if err, ok := Errors[code]; ok || code == CodeOK {
		return err
	}
	return Code(code)
}

// Refuses reports whether err is a server's answer about the request itself. Such a request would get the same answer if it was repeated
// now. All other errors are about the session, the connection, or the state of the server.
func Refuses(err error) bool {
	for _, of := range []error{zk.ErrSessionExpired, zk.ErrSessionMoved, zk.ErrClosing, Code(CodeThrottled), Code(CodeOperationTimeout)} {
		if errors.Is(err, of) {
			return false
		}
	}
	var code Code
	if errors.As(err, &code) {
		return true
	}
	for _, of := range Errors {
		if errors.Is(err, of) {
			return true
		}
	}
	return false
}

// Named returns err with the name of its code, if err ends in "unknown error: N". The client library says no more about a code for which it
// has no error. The result wraps err and that code.
func Named(err error) error {
	if err == nil {
		return nil
	}
	before, number, found := strings.Cut(err.Error(), "unknown error: ")
	if code, noNumber := strconv.ParseInt(number, 10, 32); found && noNumber == nil {
		return named{err, before, Code(code)}
	}
	return err
}

type named struct {
	error
	before string
	code   Code
}

func (n named) Error() string   { return n.before + n.code.Error() }
func (n named) Unwrap() []error { return []error{n.error, n.code} }
