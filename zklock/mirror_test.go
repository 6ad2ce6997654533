package zklock

import (
	"testing"

	"github.com/tierlock/tierlock/internal/wire"
)

// FuzzMirror shows the mirror any request, answered with success, and any event.
func FuzzMirror(f *testing.F) {
	var get, event wire.Encoder
	get.String("/x")
	get.Bool(true)
	event.Event(wire.Event{Type: wire.EventDeleted, Path: "/x"})
	f.Add(int32(wire.OpGetData), []byte(get), []byte(event))
	f.Add(int32(wire.OpGetChildren2), []byte(get[:len(get)-1]), []byte(event[:9]))
	f.Add(int32(wire.OpExists), []byte("\x7f\xff\xff\xff/x"), []byte{})
	f.Fuzz(func(t *testing.T, op int32, request, event []byte) {
		m := newWatchMirror()
		m.requested(wire.RequestHeader{Xid: 7, Op: op}, wire.Decoder{Rest: request})
		m.answered(wire.ReplyHeader{Xid: 7})
		m.answered(wire.ReplyHeader{Xid: 7})
		if len(m.set) > 1 || len(m.asked) > 0 {
			t.Errorf("one request: %d watches set, %d asked for", len(m.set), len(m.asked))
		}
		m.fired(wire.Decoder{Rest: event})
	})
}
