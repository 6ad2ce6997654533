package zktest

import (
	"encoding/binary"
	"fmt"
	"io"
)

// maxFrame is the server's default jute.maxbuffer: longer frames end the connection.
const maxFrame = 0xfffff

// An Op is the type of a request, as on the wire.
type Op int32

// The requests a server answers, and two frames that are none: OpConnect is the handshake of a connection, OpEvent a
// watch event. A server answers any other request with [CodeUnimplemented] and closes the connection, as a real one does
// with requests it does not know.
const (
	OpEvent           Op = 0
	OpCreate          Op = 1
	OpDelete          Op = 2
	OpExists          Op = 3
	OpGetData         Op = 4
	OpSetData         Op = 5
	OpGetACL          Op = 6
	OpSetACL          Op = 7
	OpGetChildren     Op = 8
	OpSync            Op = 9
	OpPing            Op = 11
	OpGetChildren2    Op = 12
	OpCheck           Op = 13 // inside OpMulti only
	OpMulti           Op = 14
	OpCreate2         Op = 15
	OpCreateContainer Op = 19
	OpSetAuth         Op = 100
	OpSetWatches      Op = 101
	OpConnect         Op = -10
	OpClose           Op = -11
)

// opError is the type of a failed result in the reply to a multi.
const opError Op = -1

var opNames = map[Op]string{
	OpEvent: "event", OpCreate: "create", OpDelete: "delete", OpExists: "exists", OpGetData: "getData",
	OpSetData: "setData", OpGetACL: "getACL", OpSetACL: "setACL", OpGetChildren: "getChildren", OpSync: "sync",
	OpPing: "ping", OpGetChildren2: "getChildren2", OpCheck: "check", OpMulti: "multi", OpCreate2: "create2",
	OpCreateContainer: "createContainer", OpSetAuth: "setAuth", OpSetWatches: "setWatches", OpConnect: "connect",
	OpClose: "closeSession",
}

func (op Op) String() string {
	if name, ok := opNames[op]; ok {
		return name
	}
	return fmt.Sprintf("op %d", int32(op))
}

// A Code is the error code in a reply.
type Code int32

// The codes a server answers of itself, and some more for [Error].
const (
	codeOK Code = 0

	CodeRuntimeInconsistency    Code = -2
	CodeMarshallingError        Code = -5
	CodeUnimplemented           Code = -6
	CodeOperationTimeout        Code = -7
	CodeBadArguments            Code = -8
	CodeNoNode                  Code = -101
	CodeNoAuth                  Code = -102
	CodeBadVersion              Code = -103
	CodeNoChildrenForEphemerals Code = -108
	CodeNodeExists              Code = -110
	CodeNotEmpty                Code = -111
	CodeSessionExpired          Code = -112
	CodeInvalidACL              Code = -114
	CodeAuthFailed              Code = -115
	CodeSessionMoved            Code = -118
	CodeQuotaExceeded           Code = -125
	CodeThrottled               Code = -127
)

// Event types and the one session state that watch events carry.
const (
	nodeCreated         int32 = 1
	nodeDeleted         int32 = 2
	nodeDataChanged     int32 = 3
	nodeChildrenChanged int32 = 4

	syncConnected int32 = 3
)

const (
	eventXid = -1
	pingXid  = -2
)

// readFrame returns the body of the next frame.
func readFrame(r io.Reader) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > maxFrame {
		return nil, fmt.Errorf("zktest: frame of %d bytes", n)
	}
	body := make([]byte, n)
	_, err := io.ReadFull(r, body)
	return body, err
}

// frame puts the length before a body.
func frame(body encoder) encoder {
	e := make(encoder, 0, 4+len(body))
	e.buffer(body)
	return e
}

// replyFrame is the frame of a reply; a failure has no body.
func replyFrame(xid int32, zxid int64, code Code, body encoder) encoder {
	var e encoder
	e.int32(xid)
	e.int64(zxid)
	e.int32(int32(code))
	if code == codeOK {
		e = append(e, body...)
	}
	return frame(e)
}

func eventFrame(kind int32, path string) encoder {
	var e encoder
	e.int32(kind)
	e.int32(syncConnected)
	e.string(path)
	return replyFrame(eventXid, -1, codeOK, e)
}

// pathOf is the path a request is about, that of its first operation for a multi; "" if it has none.
func pathOf(op Op, body []byte) string {
	d := decoder{buf: body}
	switch op {
	case OpMulti:
		const header = 4 + 1 + 4 // type, done, error
		d.take(header)
	case OpPing, OpClose, OpSetAuth, OpSetWatches, OpConnect, OpEvent:
		return ""
	}
	return d.string()
}
