package link

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/tierlock/tierlock/internal/wire"
)

// Which reply to which request sets a watch, and which event ends it.
func TestMirrorHasTheWatchesOfTheServer(t *testing.T) {
	const data, children = watchData, watchChildren
	type request struct {
		op, code int32
		watch    bool
	}
	for _, c := range []struct {
		request request
		want    []watchKind
		ends    []int32 // events that end it
	}{
		{request{wire.OpGetData, wire.CodeOK, true}, []watchKind{data}, []int32{wire.EventDataChanged, wire.EventDeleted}},
		{request{wire.OpGetChildren2, wire.CodeOK, true}, []watchKind{children}, []int32{wire.EventChildrenChanged, wire.EventDeleted}},
		{request{wire.OpGetData, wire.CodeNoNode, true}, nil, nil},
		{request{wire.OpGetChildren2, wire.CodeNoNode, true}, nil, nil},
		{request{wire.OpGetData, wire.CodeNoAuth, true}, nil, nil},
		{request{wire.OpGetData, wire.CodeOK, false}, nil, nil},
		{request{wire.OpSync, wire.CodeOK, true}, nil, nil},
	} {
		ask := func() *watchMirror {
			m := newWatchMirror()
			var body wire.Encoder
			body.String("/x")
			body.Bool(c.request.watch)
			m.requested(wire.RequestHeader{Xid: 7, Op: c.request.op}, wire.Decoder{Rest: body})
			m.answered(wire.ReplyHeader{Xid: 6})
			if len(m.set) > 0 {
				t.Errorf("%+v: set by the reply to another request", c.request)
			}
			m.answered(wire.ReplyHeader{Xid: 7, Code: c.request.code})
			return m
		}
		want := make(map[watchRef]bool)
		for _, kind := range c.want {
			want[watchRef{"/x", kind}] = true
		}
		m := ask()
		if !maps.Equal(m.set, want) || len(m.asked) > 0 {
			t.Errorf("%+v: got %v, still asked %v; want %v", c.request, m.set, m.asked, want)
		}
		for _, event := range []int32{wire.EventCreated, wire.EventDeleted, wire.EventDataChanged, wire.EventChildrenChanged} {
			m := ask()
			for _, path := range []string{"/y", "/x"} {
				var body wire.Encoder
				body.Event(wire.Event{Type: event, Path: path})
				m.fired(wire.Decoder{Rest: body})
				if ended := len(m.set) == 0; len(want) > 0 && ended != (path == "/x" && slices.Contains(c.ends, event)) {
					t.Errorf("%+v: event %d of %s ended it: %t", c.request, event, path, ended)
				}
			}
		}
	}
}

// Some replies have no zxid, as those to credentials. What was seen before stays seen.
func TestMirrorForgetsNothingThatWasSeen(t *testing.T) {
	m := newWatchMirror()
	for _, zxid := range []int64{3, 7, 0, -1} {
		m.answered(wire.ReplyHeader{Xid: 7, Zxid: zxid})
	}
	if m.seen != 7 {
		t.Errorf("seen up to %d, want 7", m.seen)
	}
}

// A server refuses a frame that is too long.
func TestWatchesAreSetAgainInFramesUpToALimit(t *testing.T) {
	for over, want := range []int{1, 2} {
		m := newWatchMirror()
		const last = 100
		m.set[watchRef{strings.Repeat("a", restoreLimit-4-4-last), watchData}] = true
		m.set[watchRef{strings.Repeat("b", last+over), watchData}] = true
		if got := len(m.restore()); got != want {
			t.Errorf("%d bytes more than the limit: %d requests, want %d", over, got, want)
		}
	}
}

// FuzzMirror shows the mirror any request, answered with success, and any event.
func FuzzMirror(f *testing.F) {
	var get, event wire.Encoder
	get.String("/x")
	get.Bool(true)
	event.Event(wire.Event{Type: wire.EventDeleted, Path: "/x"})
	f.Add(int32(wire.OpGetData), []byte(get), []byte(event))
	f.Add(int32(wire.OpGetChildren2), []byte(get[:len(get)-1]), []byte(event[:9]))
	f.Add(int32(wire.OpGetData), []byte("\x7f\xff\xff\xff/x"), []byte{})
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
