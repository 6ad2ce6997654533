package trace

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/wire"
)

// A Request is a request to ZooKeeper.
type Request struct {
	Op       string    `json:"op"` // the name of the operation, as [wire.OpName] returns it
	Session  int64     `json:"session,omitempty"`
	Path     string    `json:"path,omitempty"` // the path of the node, without its number if the server assigns that
	Data     string    `json:"data,omitempty"` // for setData: the new data
	Sequence bool      `json:"sequence,omitempty"`
	Lasts    bool      `json:"lasts,omitempty"`   // for a creation: the node does not end with the session
	Watch    bool      `json:"watch,omitempty"`   // the request sets a watch for the end of the node
	Watches  []string  `json:"watches,omitempty"` // for setWatches: the nodes whose end is watched
	Ops      []Request `json:"ops,omitempty"`     // the operations of a multi or a multiRead
}

// A Reply is ZooKeeper's answer to a [Request], or an event that reports the deletion of a node.
type Reply struct {
	Zxid    int64         `json:"zxid,omitempty"` // the transaction of a write; otherwise the last transaction that the server knew
	Code    int32         `json:"code,omitempty"`
	Failed  int           `json:"failed,omitempty"` // the index of the operation of a multi that failed with the code
	Paths   []string      `json:"paths,omitempty"`  // the paths of the nodes that were created or deleted
	Names   []string      `json:"names,omitempty"`  // the names of the children
	Parts   []Reply       `json:"parts,omitempty"`  // the answers to the operations of a multiRead
	Czxid   int64         `json:"czxid,omitempty"`
	Owner   int64         `json:"owner,omitempty"`
	Session int64         `json:"session,omitempty"` // in the answer to a handshake: 0 if the session is over
	Timeout time.Duration `json:"timeout,omitempty"`
}

// A line is a connection to ZooKeeper that records both directions.
type line struct {
	net.Conn
	number   int64         // the number of the connection in its process
	requests *atomic.Int64 // counts the requests of the process
	record   func(Event)
	out, in  []byte // the part of a frame that is not complete yet; each is used by one goroutine at a time
	shaken   bool   // the handshake was sent
	answered bool   // the handshake was answered

	mu      sync.Mutex // guards the fields below
	session int64
	sent    map[int32]asked // the requests without an answer, by their xid
}

// An asked is a request that was not answered yet.
type asked struct {
	number int64
	op     int32
	ops    int // the number of operations in a multi or a multiRead
}

// Dial connects to ZooKeeper and records all requests and replies on the connection. It is for zknode.WithDialContext.
func (w *Writer) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return recorded(conn, w.lines.Add(1), &w.requests, w.write), nil
}

func recorded(conn net.Conn, number int64, requests *atomic.Int64, record func(Event)) *line {
	return &line{Conn: conn, number: number, requests: requests, record: record, sent: make(map[int32]asked)}
}

func (l *line) Write(p []byte) (int, error) {
	l.out = frames(append(l.out, p...), l.ask)
	return l.Conn.Write(p)
}

func (l *line) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	l.in = frames(append(l.in, p[:n]...), l.hear)
	return n, err
}

// The function frames calls f with the body of each complete frame, and returns the bytes that are left.
func frames(bytes []byte, f func(*wire.Decoder)) (rest []byte) {
	for {
		d := wire.Decoder{Rest: bytes}
		if body := d.Take(int(d.Int32())); body != nil && !d.Bad {
			bytes = d.Rest
			f(&wire.Decoder{Rest: body})
			continue
		}
		return bytes
	}
}

// The method ask records a request before it is sent.
func (l *line) ask(d *wire.Decoder) {
	if !l.shaken {
		l.shaken = true
		l.note(0, wire.OpConnect, Request{Session: d.ConnectRequest().Session})
		return
	}
	switch h := d.RequestHeader(); h.Op {
	case wire.OpPing, wire.OpSetAuth:
	default:
		l.note(h.Xid, h.Op, requestOf(h.Op, d))
	}
}

func (l *line) note(xid, op int32, r Request) {
	number := l.requests.Add(1)
	l.mu.Lock()
	l.sent[xid] = asked{number, op, len(r.Ops)}
	if op != wire.OpConnect {
		r.Session = l.session
	}
	l.mu.Unlock()
	r.Op = wire.OpName(op)
	l.record(Event{Kind: Sent, Number: number, Line: l.number, Request: &r})
}

// requestOf decodes the part of a request that follows the header.
func requestOf(op int32, d *wire.Decoder) (r Request) {
	switch op {
	case wire.OpMulti, wire.OpMultiRead:
		for h := d.MultiHeader(); !h.Done && !d.Bad; h = d.MultiHeader() {
			part := requestOf(h.Op, d)
			part.Op = wire.OpName(h.Op)
			r.Ops = append(r.Ops, part)
		}
	case wire.OpSetWatches:
		r.Watches = d.SetWatches().Data
	case wire.OpClose:
	default:
		r.Path = d.String()
	}
	switch op {
	case wire.OpCreate, wire.OpCreateContainer:
		d.Buffer()
		for range d.Int32() { // one entry of the ACL
			d.Int32()
			d.Buffer()
			d.Buffer()
		}
		flags := d.Int32()
		r.Sequence, r.Lasts = flags&zk.FlagSequence != 0, op == wire.OpCreateContainer || flags&zk.FlagEphemeral == 0
	case wire.OpSetData:
		r.Data = d.String()
		d.Int32()
	case wire.OpDelete, wire.OpCheck:
		d.Int32()
	case wire.OpGetData:
		r.Watch = d.Bool()
	case wire.OpGetChildren:
		d.Bool()
	}
	return r
}

// hear records a reply before the client gets it.
func (l *line) hear(d *wire.Decoder) {
	if !l.answered {
		l.answered = true
		r := d.ConnectReply()
		l.mu.Lock()
		l.session = r.Session
		l.mu.Unlock()
		l.reply(0, Reply{Session: r.Session, Timeout: r.Timeout}, d)
		return
	}
	h := d.ReplyHeader()
	if h.Xid == wire.XidEvent {
		if e := d.Event(); e.Type == zk.EventNodeDeleted {
			l.record(Event{Kind: Gone, Line: l.number, Reply: &Reply{Paths: []string{e.Path}}})
		}
		return
	}
	l.reply(h.Xid, Reply{Zxid: h.Zxid, Code: h.Code}, d)
}

func (l *line) reply(xid int32, r Reply, d *wire.Decoder) {
	l.mu.Lock()
	q, known := l.sent[xid]
	delete(l.sent, xid)
	l.mu.Unlock()
	if !known {
		return
	}
	if r.Code == wire.CodeOK {
		r.read(q, d)
	}
	l.record(Event{Kind: Answered, Number: q.number, Line: l.number, Reply: &r})
}

// The method read decodes the part of a successful reply that follows the header.
func (r *Reply) read(q asked, d *wire.Decoder) {
	switch q.op {
	case wire.OpCreate, wire.OpCreateContainer:
		r.Paths = []string{d.String()}
	case wire.OpGetChildren, wire.OpGetChildren2:
		r.Names = d.Strings()
	case wire.OpGetData:
		d.Buffer()
		r.Czxid = d.Int64()
		d.Take(3*8 + 3*4) // mzxid, ctime, mtime, and three versions
		r.Owner = d.Int64()
		d.Take(2*4 + 8) // length of the data, number of children, pzxid
	case wire.OpMultiRead:
		for range q.ops {
			var part Reply
			if op := d.MultiHeader().Op; op == wire.OpError {
				part.Code = d.Int32()
			} else {
				part.read(asked{op: op}, d)
			}
			r.Parts = append(r.Parts, part)
		}
	case wire.OpMulti:
		for i := range q.ops {
			switch d.MultiHeader().Op {
			case wire.OpError:
				if code := d.Int32(); code != wire.CodeOK && r.Code == wire.CodeOK {
					r.Code, r.Failed = code, i
				}
			case wire.OpCreate:
				r.Paths = append(r.Paths, d.String())
			case wire.OpCreate2: // the answer for a container
				r.Paths = append(r.Paths, d.String())
				d.Take(wire.StatSize)
			case wire.OpSetData:
				d.Take(wire.StatSize)
			}
		}
	}
}
