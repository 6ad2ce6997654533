package wire

import (
	"slices"
	"time"

	"github.com/go-zookeeper/zk"
)

// A RequestHeader begins every request except the handshake.
type RequestHeader struct {
	Xid int32
	Op  int32
}

func (d *Decoder) RequestHeader() RequestHeader {
	return RequestHeader{Xid: d.Int32(), Op: d.Int32()}
}

func (e *Encoder) RequestHeader(h RequestHeader) {
	e.Int32(h.Xid)
	e.Int32(h.Op)
}

// A ReplyHeader begins every event and every reply, except the reply to the handshake. A reply with an error code has no body.
type ReplyHeader struct {
	Xid  int32
	Zxid int64
	Code int32
}

// ReplyHeaderSize is the length of a reply header.
const ReplyHeaderSize = 4 + 8 + 4

func (d *Decoder) ReplyHeader() ReplyHeader {
	return ReplyHeader{Xid: d.Int32(), Zxid: d.Int64(), Code: d.Int32()}
}

func (e *Encoder) ReplyHeader(h ReplyHeader) {
	e.Int32(h.Xid)
	e.Int64(h.Zxid)
	e.Int32(h.Code)
}

// An Event is the body of a watch event.
type Event struct {
	Type  zk.EventType
	State zk.State
	Path  string
}

func (d *Decoder) Event() Event {
	return Event{Type: zk.EventType(d.Int32()), State: zk.State(d.Int32()), Path: d.String()}
}

func (e *Encoder) Event(v Event) {
	e.Int32(int32(v.Type))
	e.Int32(int32(v.State))
	e.String(v.Path)
}

// SetWatches is the body of a request that sets several watches. For example, it restores the watches of a broken connection. If a node
// does not exist, or has changed since Zxid, its watch fires at once.
type SetWatches struct {
	Zxid                  int64
	Data, Exist, Children []string
}

func (d *Decoder) SetWatches() SetWatches {
	return SetWatches{Zxid: d.Int64(), Data: d.Strings(), Exist: d.Strings(), Children: d.Strings()}
}

func (e *Encoder) SetWatches(q SetWatches) {
	e.Int64(q.Zxid)
	e.Strings(q.Data)
	e.Strings(q.Exist)
	e.Strings(q.Children)
}

// RemoveWatches is the body of a request that ends the watches that a connection has on a path.
type RemoveWatches struct {
	Path string
	Kind int32 // the kind of watches to end
}

// AnyWatch is the kind of a RemoveWatches that ends the watches on data and on children.
const AnyWatch = 3

func (d *Decoder) RemoveWatches() RemoveWatches {
	return RemoveWatches{Path: d.String(), Kind: d.Int32()}
}

func (e *Encoder) RemoveWatches(q RemoveWatches) {
	e.String(q.Path)
	e.Int32(q.Kind)
}

// A MultiHeader precedes each operation and each result of a multi or a multiRead. One more MultiHeader follows the last operation or
// result.
type MultiHeader struct {
	Op   int32
	Done bool
	Code int32
}

// MultiHeaderSize is the length of a multi header.
const MultiHeaderSize = 4 + 1 + 4

// LastOfMulti is the header that follows the last operation or result.
var LastOfMulti = MultiHeader{Op: -1, Done: true, Code: -1}

func (d *Decoder) MultiHeader() MultiHeader {
	return MultiHeader{Op: d.Int32(), Done: d.Bool(), Code: d.Int32()}
}

func (e *Encoder) MultiHeader(h MultiHeader) {
	e.Int32(h.Op)
	e.Bool(h.Done)
	e.Int32(h.Code)
}

// A ConnectRequest is the first request on a connection.
type ConnectRequest struct {
	LastZxid int64 // the last transaction that the client has seen
	Timeout  time.Duration
	Session  int64 // zero for a new session
	Password []byte
	ReadOnly bool // the client knows of read-only servers, and expects one byte more in the answer
}

func (d *Decoder) ConnectRequest() ConnectRequest {
	d.Int32() // protocol version
	q := ConnectRequest{LastZxid: d.Int64(), Timeout: d.millis(), Session: d.Int64(), Password: d.Buffer()}
	q.ReadOnly = len(d.Rest) > 0
	return q
}

func (e *Encoder) ConnectRequest(q ConnectRequest) {
	e.Int32(0) // protocol version
	e.Int64(q.LastZxid)
	e.Int32(int32(q.Timeout.Milliseconds()))
	e.Int64(q.Session)
	e.Buffer(q.Password)
	if q.ReadOnly {
		e.Bool(false)
	}
}

// A ConnectReply is the answer to a ConnectRequest. If Session is zero, the requested session has expired.
type ConnectReply struct {
	Timeout  time.Duration // negotiated
	Session  int64
	Password []byte
	ReadOnly bool // the client expects one more byte
}

func (d *Decoder) ConnectReply() ConnectReply {
	d.Int32() // protocol version
	r := ConnectReply{Timeout: d.millis(), Session: d.Int64(), Password: d.Buffer()}
	r.ReadOnly = len(d.Rest) > 0
	return r
}

func (e *Encoder) ConnectReply(r ConnectReply) {
	e.Int32(0) // protocol version
	e.Int32(int32(r.Timeout.Milliseconds()))
	e.Int64(r.Session)
	e.Buffer(r.Password)
	if r.ReadOnly {
		e.Bool(false)
	}
}

func (d *Decoder) millis() time.Duration { return time.Duration(d.Int32()) * time.Millisecond }

// About returns the path to which a request belongs, or "" if it has none. For a multi or a multiRead it returns the path of the first
// operation, and in first the type of that operation. For setWatches it returns the first path. The decoder d is positioned after the
// header.
func About(op int32, d Decoder) (path, first string) {
	switch op {
	case OpMulti, OpMultiRead:
		first = OpName(d.MultiHeader().Op)
	case OpSetWatches:
		q := d.SetWatches()
		if all := slices.Concat(q.Data, q.Exist, q.Children); len(all) > 0 {
			path = all[0]
		}
		return path, ""
	case OpPing, OpClose, OpSetAuth:
		return "", ""
	}
	return d.String(), first
}
