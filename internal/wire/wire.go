// Package wire has the part of ZooKeeper's wire protocol that is needed to read frames, change them, and answer them. Names and numbers
// are those of zookeeper.jute, ZooDefs.OpCode and KeeperException.Code.
//
// Every frame is a body preceded by its length in four bytes. The body begins with a header, except in a handshake.
package wire

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"
)

// These are the types of requests, and two other types: OpConnect stands for the handshake, which has no header, and OpEvent for a watch
// event. OpError is the type of a failed result in the reply to a multi.
const (
	OpEvent           = 0
	OpCreate          = 1
	OpDelete          = 2
	OpExists          = 3
	OpGetData         = 4
	OpSetData         = 5
	OpGetACL          = 6
	OpSetACL          = 7
	OpGetChildren     = 8
	OpSync            = 9
	OpPing            = 11
	OpGetChildren2    = 12
	OpCheck           = 13
	OpMulti           = 14
	OpCreate2         = 15
	OpRemoveWatches   = 18
	OpCreateContainer = 19
	OpMultiRead       = 22
	OpSetAuth         = 100
	OpSetWatches      = 101
	OpError           = -1
	OpConnect         = -10
	OpClose           = -11
)

var opNames = map[int32]string{
	OpEvent: "event", OpCreate: "create", OpDelete: "delete", OpExists: "exists", OpGetData: "getData",
	OpSetData: "setData", OpGetACL: "getACL", OpSetACL: "setACL", OpGetChildren: "getChildren", OpSync: "sync",
	OpPing: "ping", OpGetChildren2: "getChildren2", OpCheck: "check", OpMulti: "multi", OpCreate2: "create2",
	OpRemoveWatches: "removeWatches", OpCreateContainer: "createContainer", OpMultiRead: "multiRead", OpSetAuth: "setAuth",
	OpSetWatches: "setWatches", OpConnect: "connect", OpClose: "closeSession",
}

// OpName returns the name of a type of request.
func OpName(op int32) string {
	if name, ok := opNames[op]; ok {
		return name
	}
	return fmt.Sprintf("op %d", op)
}

// These are the xids of frames that do not answer a numbered request.
const (
	XidEvent = -1
	XidPing  = -2
)

const (
	lengthSize = 4
	// StatSize is the length of the stat of a node.
	StatSize = 6*8 + 5*4
	// PasswordLen is the length of the password of a session.
	PasswordLen = 16
)

// TooLong is the error of a frame that announces more bytes than its reader accepts. Its value is the announced number of bytes.
type TooLong uint32

func (n TooLong) Error() string {
	return fmt.Sprintf("frame of %d bytes announced: not ZooKeeper's protocol?", uint32(n))
}

// ReadFrame reads the next frame with its length. It uses buf if buf is large enough, and otherwise a new buffer. If a frame announces more
// than limit bytes, the error is a [TooLong]. A peer that speaks another protocol announces over half a gigabyte.
func ReadFrame(r io.Reader, buf []byte, limit int) ([]byte, error) {
	length := slices.Grow(buf[:0], lengthSize)[:lengthSize]
	if _, err := io.ReadFull(r, length); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(length)
	if int64(n) > int64(limit) {
		return nil, TooLong(n)
	}
	frame := slices.Grow(length, int(n))[:lengthSize+int(n)]
	if _, err := io.ReadFull(r, frame[lengthSize:]); err != nil {
		return nil, err
	}
	return frame, nil
}

// Body returns a frame without its length.
func Body(frame []byte) []byte { return frame[min(lengthSize, len(frame)):] }

// Frame puts the length before a body.
func Frame(body []byte) []byte {
	e := append(make(Encoder, lengthSize, lengthSize+len(body)), body...)
	e.EndFrame(0)
	return e
}

// EndFrame writes the length of a frame that starts at begin. The caller has reserved the space for the length.
func (e Encoder) EndFrame(begin int) {
	binary.BigEndian.PutUint32(e[begin:], uint32(len(e)-begin-lengthSize))
}
