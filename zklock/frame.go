package zklock

import (
	"bytes"
	"encoding/binary"
	"time"
)

// The few facts of ZooKeeper's wire protocol that the socket needs to read
// (zookeeper.jute, ZooDefs.OpCode, KeeperException.Code). Every frame starts with its
// length in four bytes.
const (
	xidEvent = -1
	xidPing  = -2

	opExists       = 3
	opGetData      = 4
	opGetChildren  = 8
	opGetChildren2 = 12
	opSetWatches   = 101

	codeNoNode         = -101
	codeSessionExpired = -112
	codeSessionMoved   = -118

	eventCreated         = 1
	eventDeleted         = 2
	eventDataChanged     = 3
	eventChildrenChanged = 4
)

// requestHeader reads xid and operation of a request.
func requestHeader(frame []byte) (xid, op int32, ok bool) {
	if len(frame) < 12 {
		return 0, 0, false
	}
	return int32At(frame, 4), int32At(frame, 8), true
}

// watchRequest reads the path of a request for data, children or existence, and whether
// it asks for a watch.
func watchRequest(frame []byte) (path string, watch bool) {
	path, rest, ok := stringAt(frame, 12)
	return path, ok && rest < len(frame) && frame[rest] != 0
}

// withoutLastZxid returns a handshake that does not claim to have seen any transaction.
func withoutLastZxid(handshake []byte) []byte {
	if len(handshake) < 16 {
		return handshake
	}
	handshake = bytes.Clone(handshake)
	clear(handshake[8:16]) // after length and protocol version
	return handshake
}

type reply struct {
	xid  int32
	zxid int64
	code int32
}

// replyHeader reads the header of a reply or event.
func replyHeader(frame []byte) (reply, bool) {
	if len(frame) < 20 {
		return reply{}, false
	}
	return reply{int32At(frame, 4), int64(binary.BigEndian.Uint64(frame[8:])), int32At(frame, 16)}, true
}

// watchEvent reads type and path of an event.
func watchEvent(frame []byte) (event int32, path string, ok bool) {
	if len(frame) < 28 {
		return 0, "", false
	}
	path, _, ok = stringAt(frame, 28) // header, type, state
	return int32At(frame, 20), path, ok
}

// handshakeReply reads the negotiated timeout and the session id; id 0 means that the
// session that was asked for is over.
func handshakeReply(frame []byte) (timeout time.Duration, id int64, ok bool) {
	if len(frame) < 24 {
		return 0, 0, false
	}
	ms := int32At(frame, 8) // after the protocol version
	return time.Duration(ms) * time.Millisecond, int64(binary.BigEndian.Uint64(frame[12:])), true
}

func int32At(frame []byte, at int) int32 {
	return int32(binary.BigEndian.Uint32(frame[at:]))
}

// stringAt reads a string and where it ends.
func stringAt(frame []byte, at int) (s string, end int, ok bool) {
	if len(frame) < at+4 {
		return "", 0, false
	}
	n := int(int32At(frame, at))
	at += 4
	if n < 0 || n > len(frame)-at {
		return "", 0, false
	}
	return string(frame[at : at+n]), at + n, true
}
