package zktest

import "github.com/tierlock/tierlock/internal/wire"

// maxFrame is the server's default jute.maxbuffer: longer frames end the connection.
const maxFrame = 0xfffff

// An Op is the type of a request, as on the wire.
type Op int32

// The requests a server answers, and two frames that are none: OpConnect is the handshake of a connection, OpEvent a
// watch event. A server answers any other request with [CodeUnimplemented] and closes the connection, as a real one does
// with requests it does not know.
const (
	OpEvent           Op = wire.OpEvent
	OpCreate          Op = wire.OpCreate
	OpDelete          Op = wire.OpDelete
	OpExists          Op = wire.OpExists
	OpGetData         Op = wire.OpGetData
	OpSetData         Op = wire.OpSetData
	OpGetACL          Op = wire.OpGetACL
	OpSetACL          Op = wire.OpSetACL
	OpGetChildren     Op = wire.OpGetChildren
	OpSync            Op = wire.OpSync
	OpPing            Op = wire.OpPing
	OpGetChildren2    Op = wire.OpGetChildren2
	OpCheck           Op = wire.OpCheck // inside OpMulti only
	OpMulti           Op = wire.OpMulti
	OpCreate2         Op = wire.OpCreate2
	OpCreateContainer Op = wire.OpCreateContainer
	OpSetAuth         Op = wire.OpSetAuth
	OpSetWatches      Op = wire.OpSetWatches
	OpConnect         Op = wire.OpConnect
	OpClose           Op = wire.OpClose
)

func (op Op) String() string { return wire.OpName(int32(op)) }

// A Code is the error code in a reply.
type Code int32

// The codes a server answers of itself, and some more for [Error].
const (
	codeOK Code = wire.CodeOK

	CodeRuntimeInconsistency    Code = wire.CodeRuntimeInconsistency
	CodeMarshallingError        Code = wire.CodeMarshallingError
	CodeUnimplemented           Code = wire.CodeUnimplemented
	CodeOperationTimeout        Code = wire.CodeOperationTimeout
	CodeBadArguments            Code = wire.CodeBadArguments
	CodeNoNode                  Code = wire.CodeNoNode
	CodeNoAuth                  Code = wire.CodeNoAuth
	CodeBadVersion              Code = wire.CodeBadVersion
	CodeNoChildrenForEphemerals Code = wire.CodeNoChildrenForEphemerals
	CodeNodeExists              Code = wire.CodeNodeExists
	CodeNotEmpty                Code = wire.CodeNotEmpty
	CodeSessionExpired          Code = wire.CodeSessionExpired
	CodeInvalidACL              Code = wire.CodeInvalidACL
	CodeAuthFailed              Code = wire.CodeAuthFailed
	CodeSessionMoved            Code = wire.CodeSessionMoved
	CodeQuotaExceeded           Code = wire.CodeQuotaExceeded
	CodeThrottled               Code = wire.CodeThrottled
)
