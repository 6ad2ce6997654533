package wire_test

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/wire"
)

// The variable frames lists frames as bytes on the wire, from zookeeper.jute, and in decoded form.
var frames = []struct {
	name   string
	frame  string
	decode func(d *wire.Decoder) any
	encode func(e *wire.Encoder, v any)
	want   any
}{
	{"request", "\x00\x00\x00\x08\x00\x00\x00\x07\x00\x00\x00\x04",
		func(d *wire.Decoder) any { return d.RequestHeader() },
		func(e *wire.Encoder, v any) { e.RequestHeader(v.(wire.RequestHeader)) },
		wire.RequestHeader{Xid: 7, Op: wire.OpGetData}},
	{"reply", "\x00\x00\x00\x10\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x00\x2a\xff\xff\xff\x9b",
		func(d *wire.Decoder) any { return d.ReplyHeader() },
		func(e *wire.Encoder, v any) { e.ReplyHeader(v.(wire.ReplyHeader)) },
		wire.ReplyHeader{Xid: 7, Zxid: 42, Code: wire.CodeNoNode}},
	{"event", "\x00\x00\x00\x0e\x00\x00\x00\x02\x00\x00\x00\x03\x00\x00\x00\x02/x",
		func(d *wire.Decoder) any { return d.Event() },
		func(e *wire.Encoder, v any) { e.Event(v.(wire.Event)) },
		wire.Event{Type: zk.EventNodeDeleted, State: zk.StateSyncConnected, Path: "/x"}},
	{"last of a multi", "\x00\x00\x00\x09\xff\xff\xff\xff\x01\xff\xff\xff\xff",
		func(d *wire.Decoder) any { return d.MultiHeader() },
		func(e *wire.Encoder, v any) { e.MultiHeader(v.(wire.MultiHeader)) },
		wire.LastOfMulti},
	{"handshake", "\x00\x00\x00\x1e\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x2a\x00\x00\x17\x70" +
		"\x01\x02\x03\x04\x05\x06\x07\x08\x00\x00\x00\x02pw",
		func(d *wire.Decoder) any { return d.ConnectRequest() },
		func(e *wire.Encoder, v any) { e.ConnectRequest(v.(wire.ConnectRequest)) },
		wire.ConnectRequest{LastZxid: 42, Timeout: 6 * time.Second, Session: 0x0102030405060708, Password: []byte("pw")}},
	{"answer to a handshake", "\x00\x00\x00\x16\x00\x00\x00\x00\x00\x00\x17\x70" +
		"\x01\x02\x03\x04\x05\x06\x07\x08\x00\x00\x00\x02pw",
		func(d *wire.Decoder) any { return d.ConnectReply() },
		func(e *wire.Encoder, v any) { e.ConnectReply(v.(wire.ConnectReply)) },
		wire.ConnectReply{Timeout: 6 * time.Second, Session: 0x0102030405060708, Password: []byte("pw")}},
	{"strings", "\x00\x00\x00\x0d\x00\x00\x00\x02\x00\x00\x00\x01a\x00\x00\x00\x00",
		func(d *wire.Decoder) any { return d.Strings() },
		func(e *wire.Encoder, v any) { e.Strings(v.([]string)) },
		[]string{"a", ""}},
}

func TestFramesAreReadAndWrittenAsTheProtocolSays(t *testing.T) {
	for _, f := range frames {
		frame, err := wire.ReadFrame(strings.NewReader(f.frame), nil, 64)
		d := wire.Decoder{Rest: wire.Body(frame)}
		if got := f.decode(&d); err != nil || d.Bad || len(d.Rest) > 0 || !reflect.DeepEqual(got, f.want) {
			t.Errorf("%s: read %+v, bad %t, %d bytes left, error %v; want %+v", f.name, got, d.Bad, len(d.Rest), err, f.want)
		}
		var e wire.Encoder
		f.encode(&e, f.want)
		need.Equal(t, f.name+": wrote", string(wire.Frame(e)), f.frame)
	}
}

func TestTruncatedBodiesAreBad(t *testing.T) {
	for _, f := range frames {
		body := []byte(f.frame[4:])
		for n := range body {
			d := wire.Decoder{Rest: body[:n:n]}
			got := f.decode(&d)
			need.That(t, fmt.Sprintf("%s: %d of %d bytes read as %+v", f.name, n, len(body), got), d.Bad)
		}
	}
}

func TestHandshakesOfClientsThatKnowReadOnlyServersKeepTheirLastByte(t *testing.T) {
	var q, r wire.Encoder
	q.ConnectRequest(wire.ConnectRequest{ReadOnly: true})
	r.ConnectReply(wire.ConnectReply{ReadOnly: true})
	sent, answered := wire.Decoder{Rest: q}, wire.Decoder{Rest: r}
	need.That(t, "lost in the request", sent.ConnectRequest().ReadOnly)
	need.That(t, "lost in the answer", answered.ConnectReply().ReadOnly)
}

func TestNullAndNegativeCounts(t *testing.T) {
	for n, want := range map[int32]struct{ buffer, vector bool }{ // whether this count is an error for a buffer, or for a vector
		0: {}, -1: {}, -2: {buffer: true}, math.MinInt32: {buffer: true}, 1: {true, true}, math.MaxInt32: {true, true},
	} {
		var e wire.Encoder
		e.Int32(n)
		buffer, vector := wire.Decoder{Rest: e}, wire.Decoder{Rest: e}
		b, v := buffer.Buffer(), vector.Strings()
		need.That(t, fmt.Sprintf("%d: buffer %q, bad %t; vector %q, bad %t; want %+v", n, b, buffer.Bad, v, vector.Bad, want),
			buffer.Bad == want.buffer && vector.Bad == want.vector && len(b)+len(v) == 0)
	}
}

func TestReadFrame(t *testing.T) {
	buf := make([]byte, 0, 12)
	frame, err := wire.ReadFrame(strings.NewReader("\x00\x00\x00\x08abcdefgh"), buf, 8)
	need.That(t, fmt.Sprintf("into a buffer that is long enough: %q, %v", frame, err),
		err == nil && string(frame) == "\x00\x00\x00\x08abcdefgh" && &frame[0] == &buf[:1][0])
	if frame, err = wire.ReadFrame(strings.NewReader("\x00\x00\x00\x09abcdefghi"), buf, 9); err != nil ||
		string(wire.Body(frame)) != "abcdefghi" {
		t.Errorf("into one that is too short: %q, %v", frame, err)
	}
	for in, want := range map[string]string{
		"":                         io.EOF.Error(),
		"\x00\x00":                 io.ErrUnexpectedEOF.Error(),
		"\x00\x00\x00\x08":         io.EOF.Error(),
		"\x00\x00\x00\x08a":        io.ErrUnexpectedEOF.Error(),
		"\x00\x00\x00\x0aabcdefgh": "frame of 10 bytes announced: not ZooKeeper's protocol?",
		"\xff\xff\xff\xff":         "frame of 4294967295 bytes announced: not ZooKeeper's protocol?",
		"HTTP/1.1 400":             "frame of 1213486160 bytes announced: not ZooKeeper's protocol?",
	} {
		need.Equal(t, in, fmt.Sprint(need.ErrOf(wire.ReadFrame(strings.NewReader(in), nil, 9))), want)
	}
}

// FuzzDecoder decodes any bytes as each part of a frame. If that succeeds, encoding the result has to return the same bytes.
func FuzzDecoder(f *testing.F) {
	for i, frame := range frames {
		f.Add(uint(i), []byte(frame.frame[4:]))
	}
	f.Add(uint(6), []byte("\x7f\xff\xff\xff"))                                   // a vector of two billion strings
	f.Add(uint(6), []byte("\x80\x00\x00\x00"))                                   // a vector with a negative number of strings
	f.Add(uint(2), []byte("\x00\x00\x00\x01\x00\x00\x00\x03\x7f\xff\xff\xff/x")) // a string longer than its frame
	f.Fuzz(func(t *testing.T, which uint, body []byte) {
		frame := frames[which%uint(len(frames))]
		d := wire.Decoder{Rest: slices.Clone(body)}
		v := frame.decode(&d)
		if d.Bad {
			need.Empty(t, "bytes left after reading past the end", d.Rest)
			return
		}
		var e wire.Encoder
		frame.encode(&e, v)
		again := wire.Decoder{Rest: bytes.Clone(e)}
		got := frame.decode(&again)
		need.That(t, fmt.Sprintf("read %+v, then %+v", v, got), !again.Bad && reflect.DeepEqual(got, v))
	})
}

func TestWhatARequestIsAbout(t *testing.T) {
	var plain, multi, watches wire.Encoder
	plain.String("/x")
	multi.MultiHeader(wire.MultiHeader{Op: wire.OpDelete, Code: -1})
	multi.String("/x")
	for op, want := range map[int32]string{wire.OpDelete: "/x", wire.OpGetACL: "/x", wire.OpPing: "", wire.OpSetAuth: "",
		wire.OpClose: ""} {
		got, first := wire.About(op, wire.Decoder{Rest: plain})
		need.Equal(t, wire.OpName(op), [2]string{got, first}, [2]string{want, ""})
	}
	watches.SetWatches(wire.SetWatches{Data: []string{"/y"}, Children: []string{"/x"}})
	for want, body := range map[string]wire.Encoder{"/y": watches, "": make(wire.Encoder, 8+3*4)} {
		got, first := wire.About(wire.OpSetWatches, wire.Decoder{Rest: body})
		need.Equal(t, wire.OpName(wire.OpSetWatches), [2]string{got, first}, [2]string{want, ""})
	}
	for _, op := range []int32{wire.OpMulti, wire.OpMultiRead} {
		got, first := wire.About(op, wire.Decoder{Rest: multi})
		need.Equal(t, wire.OpName(op), [2]string{got, first}, [2]string{"/x", "delete"})
	}
}
