package faultproxy

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/tierlock/tierlock/zktest"
)

// The few facts of ZooKeeper's wire protocol that the proxy needs (zookeeper.jute, ZooDefs.OpCode). Every frame starts
// with its length in four bytes; offsets are in the body behind it.
const (
	maxFrame = 32 << 20 // no honest frame is longer; a peer that speaks another protocol announces over a gigabyte

	xidEvent = -1

	requestHeader = 4 + 4     // xid, type
	replyHeader   = 4 + 8 + 4 // xid, zxid, code
	codeAt        = 4 + 8
	eventPathAt   = replyHeader + 4 + 4    // type, state
	multiPathAt   = requestHeader + 9      // type, done, error
	claimAt       = 4 + 8 + 4              // of a handshake: version, last zxid, timeout
	passwordAt    = claimAt + 8            // session
	sessionAt     = 4 + 4                  // of its answer: version, timeout
	passwordLen   = 16                     // of an answer
	answerLen     = sessionAt + 8 + 4 + 16 // session, length of the password, password
)

// readFrame returns the body of the next frame.
func readFrame(r io.Reader) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > maxFrame {
		return nil, fmt.Errorf("faultproxy: frame of %d bytes", n)
	}
	body := make([]byte, n)
	_, err := io.ReadFull(r, body)
	return body, err
}

// writeFrame writes a body with its length, in one piece.
func writeFrame(w io.Writer, body []byte) error {
	frame := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body)))
	_, err := w.Write(append(frame, body...))
	return err
}

// Reading past the end of a body yields zero values.

func int32At(body []byte, at int) int32 {
	if len(body) < at+4 {
		return 0
	}
	return int32(binary.BigEndian.Uint32(body[at:]))
}

func int64At(body []byte, at int) int64 {
	if len(body) < at+8 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(body[at:]))
}

func stringAt(body []byte, at int) string {
	n := int(int32At(body, at))
	if at += 4; n <= 0 || n > len(body)-at {
		return ""
	}
	return string(body[at : at+n])
}

// pathOf is the path a request is about, that of its first operation for a multi; "" if it has none.
func pathOf(op zktest.Op, body []byte) string {
	switch op {
	case zktest.OpMulti:
		return stringAt(body, multiPathAt)
	case zktest.OpPing, zktest.OpClose, zktest.OpSetAuth, zktest.OpSetWatches:
		return ""
	}
	return stringAt(body, requestHeader)
}

// harmless is a request that takes the place of another one: does the root exist?
func harmless(xid int32) []byte {
	body := binary.BigEndian.AppendUint32(nil, uint32(xid))
	body = binary.BigEndian.AppendUint32(body, uint32(zktest.OpExists))
	body = binary.BigEndian.AppendUint32(body, 1)
	return append(body, '/', 0) // no watch
}

// failure turns a reply into one with code, which has no body.
func failure(reply []byte, code zktest.Code) []byte {
	return binary.BigEndian.AppendUint32(reply[:codeAt:codeAt], uint32(code))
}

// expiredAnswer says to a handshake that its session has expired.
func expiredAnswer(handshake []byte) []byte {
	answer := make([]byte, answerLen)
	binary.BigEndian.PutUint32(answer[sessionAt+8:], passwordLen)
	if len(handshake) > passwordAt+4+int(int32At(handshake, passwordAt)) {
		answer = append(answer, 0) // the client knows of read-only servers, and expects one byte more
	}
	return answer
}
