package zklock

import (
	"encoding/binary"
	"testing"
	"time"
)

// Frames as they are on the wire, from zookeeper.jute.
var (
	getDataFrame = []byte("\x00\x00\x00\x0f\x00\x00\x00\x07\x00\x00\x00\x04\x00\x00\x00\x02/x\x01")
	replyFrame   = []byte("\x00\x00\x00\x10\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x00\x2a\xff\xff\xff\x9b")
	eventFrame   = []byte("\x00\x00\x00\x1e\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00" +
		"\x00\x00\x00\x02\x00\x00\x00\x03\x00\x00\x00\x02/x")
	handshakeFrame = []byte("\x00\x00\x00\x14\x00\x00\x00\x00\x00\x00\x17\x70\x01\x02\x03\x04\x05\x06\x07\x08\x00\x00\x00\x00")
)

func TestFramesAreReadAsTheProtocolSays(t *testing.T) {
	if xid, op, ok := requestHeader(getDataFrame); xid != 7 || op != opGetData || !ok {
		t.Errorf("requestHeader: got %d %d %t", xid, op, ok)
	}
	if path, watch := watchRequest(getDataFrame); path != "/x" || !watch {
		t.Errorf("watchRequest: got %q %t", path, watch)
	}
	if r, ok := replyHeader(replyFrame); r != (reply{7, 42, codeNoNode}) || !ok {
		t.Errorf("replyHeader: got %+v %t", r, ok)
	}
	if event, path, ok := watchEvent(eventFrame); event != eventDeleted || path != "/x" || !ok {
		t.Errorf("watchEvent: got %d %q %t", event, path, ok)
	}
	if timeout, id, ok := handshakeReply(handshakeFrame); timeout != 6*time.Second || id != 0x0102030405060708 || !ok {
		t.Errorf("handshakeReply: got %v %#x %t", timeout, id, ok)
	}
}

func TestTruncatedFramesAreRefused(t *testing.T) {
	parse := func(frame []byte, f func([]byte) bool, least int) {
		for n := range frame {
			if got := f(frame[:n:n]); got != (n >= least) {
				t.Errorf("%d bytes of %q: got %t", n, frame, got)
			}
		}
	}
	parse(getDataFrame, func(b []byte) bool { _, _, ok := requestHeader(b); return ok }, 12)
	parse(getDataFrame, func(b []byte) bool { _, ok := watchRequest(b); return ok }, len(getDataFrame))
	parse(replyFrame, func(b []byte) bool { _, ok := replyHeader(b); return ok }, len(replyFrame))
	parse(eventFrame, func(b []byte) bool { _, _, ok := watchEvent(b); return ok }, len(eventFrame))
	parse(handshakeFrame, func(b []byte) bool { _, _, ok := handshakeReply(b); return ok }, len(handshakeFrame))
}

// FuzzFrames sends any bytes through everything that reads frames, and the mirror that acts on them.
func FuzzFrames(f *testing.F) {
	for _, frame := range [][]byte{nil, getDataFrame, replyFrame, eventFrame, handshakeFrame} {
		f.Add(frame)
	}
	long := make([]byte, 40)
	binary.BigEndian.PutUint32(long[12:], 1<<31-1) // a string longer than its frame
	binary.BigEndian.PutUint32(long[28:], 1<<31)   // one of negative length
	f.Add(long)
	f.Fuzz(func(t *testing.T, frame []byte) {
		mirror := newWatchMirror()
		if xid, op, ok := requestHeader(frame); ok {
			mirror.requested(xid, op, frame)
			mirror.answered(xid, 0)
		}
		if path, _ := watchRequest(frame); len(path) > len(frame) {
			t.Errorf("a path of %d bytes in a frame of %d", len(path), len(frame))
		}
		replyHeader(frame)
		handshakeReply(frame)
		mirror.fired(frame)
		if len(mirror.set) > 1 {
			t.Errorf("one frame set %d watches", len(mirror.set))
		}
	})
}
