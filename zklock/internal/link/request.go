package link

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/wire"
)

// A Request is asked of the server, alone or together with others; see [Link.Ask].
type Request interface {
	op() int32
	// encode writes the body of the request, decode reads that of a successful reply.
	encode(*wire.Encoder)
	decode(*wire.Decoder, *Answer)
	// call asks by way of the client library.
	call(*attached) Answer
}

// An Answer is what became of a request. What it tells depends on the request.
type Answer struct {
	Err      error
	Created  []string // paths
	Children []string
	Stat     zk.Stat
	Data     []byte // at most [maxData] of it

	// Nothing of a connection that was made elsewhere:
	Zxid    int64    // of the transaction
	Session *Session // under which it was executed
}

// A read tells a znode, or lists its children, and may watch it. Unlike one by exists, it leaves no watch behind where there is no node,
// which would stay for ever.
type read struct {
	path    string
	list    bool
	Watch   bool     // it asks for the watch
	watcher *Watcher // who hears of it
}

// List is a request for the names of the children of a path.
func List(path string) Request { return read{path: path, list: true} }

// Get is a request for what a znode is.
func Get(path string) Request { return read{path: path} }

func (r read) op() int32 {
	if r.list {
		return wire.OpGetChildren2
	}
	return wire.OpGetData
}

// part is op among several that are sent as one.
func (r read) part() int32 {
	if r.list {
		return wire.OpGetChildren
	}
	return wire.OpGetData
}

func (r read) encode(e *wire.Encoder) {
	e.String(r.path)
	e.Bool(r.Watch)
}

func (r read) decode(d *wire.Decoder, a *Answer) {
	if r.list {
		a.Children = d.Strings()
		return
	}
	a.Data = kept(d.Buffer()) // the frame is read into again
	a.Stat = zk.Stat{
		Czxid: d.Int64(), Mzxid: d.Int64(), Ctime: d.Int64(), Mtime: d.Int64(),
		Version: d.Int32(), Cversion: d.Int32(), Aversion: d.Int32(),
		EphemeralOwner: d.Int64(), DataLength: d.Int32(), NumChildren: d.Int32(), Pzxid: d.Int64(),
	}
}

// maxData is what a node may say of its owner: more than any of this package does.
const maxData = 1 << 10

func kept(data []byte) []byte {
	if len(data) > maxData {
		return nil
	}
	return bytes.Clone(data)
}

func (r read) call(c *attached) (a Answer) {
	conn := c.link.Conn
	var stat *zk.Stat
	var events <-chan zk.Event
	switch {
	case r.list && r.Watch:
		a.Children, stat, events, a.Err = conn.ChildrenW(r.path)
	case r.list:
		a.Children, stat, a.Err = conn.Children(r.path)
	case r.Watch:
		a.Data, stat, events, a.Err = conn.GetW(r.path)
	default:
		a.Data, stat, a.Err = conn.Get(r.path)
	}
	if a.Err != nil {
		return Answer{Err: a.Err}
	}
	if a.Data, a.Stat = kept(a.Data), *stat; r.Watch {
		c.forward(events)
	}
	return a
}

// A Transaction creates and deletes znodes, all or none. One operation alone needs no multi,
// unless it is a check, which a server takes in no other way. A container, which the server removes when it is empty, is created alone.
type Transaction []any

func (t Transaction) op() int32 {
	if len(t) == 1 && opOf(t[0]) != wire.OpCheck {
		return opOf(t[0])
	}
	return wire.OpMulti
}

func opOf(op any) int32 {
	switch op := op.(type) {
	case *zk.CreateRequest:
		if op.Flags == zk.FlagContainer {
			return wire.OpCreateContainer
		}
		return wire.OpCreate
	case *zk.DeleteRequest:
		return wire.OpDelete
	case *zk.CheckVersionRequest:
		return wire.OpCheck
	}
	panic(fmt.Sprintf("zklock: no operation of a transaction: %T", op))
}

func (t Transaction) encode(e *wire.Encoder) {
	if t.op() != wire.OpMulti {
		encodeOp(e, t[0])
		return
	}
	t.encodeOps(e)
	e.MultiHeader(wire.LastOfMulti)
}

// encodeOps writes the operations as a multi has them.
func (t Transaction) encodeOps(e *wire.Encoder) {
	for _, op := range t {
		e.MultiHeader(wire.MultiHeader{Op: opOf(op), Code: -1})
		encodeOp(e, op)
	}
}

func encodeOp(e *wire.Encoder, op any) {
	switch op := op.(type) {
	case *zk.CreateRequest:
		e.String(op.Path)
		e.Buffer(op.Data)
		e.Int32(int32(len(op.Acl)))
		for _, a := range op.Acl {
			e.Int32(a.Perms)
			e.String(a.Scheme)
			e.String(a.ID)
		}
		e.Int32(op.Flags)
	case *zk.DeleteRequest:
		e.String(op.Path)
		e.Int32(op.Version)
	case *zk.CheckVersionRequest:
		e.String(op.Path)
		e.Int32(op.Version)
	}
}

func (t Transaction) decode(d *wire.Decoder, a *Answer) {
	if t.op() != wire.OpMulti {
		if _, creates := t[0].(*zk.CreateRequest); creates {
			a.Created = []string{d.String()}
		}
		t.verify(a, 1)
		return
	}
	t.decodeOps(d, a)
	if a.Err == nil && !d.MultiHeader().Done {
		a.Err = fmt.Errorf("the server answered more than %d results to as many operations", len(t))
	}
}

// decodeOps reads the results of the operations.
func (t Transaction) decodeOps(d *wire.Decoder, a *Answer) {
	results := 0
	for range t {
		h := d.MultiHeader()
		if h.Done || d.Bad {
			break
		}
		switch h.Op {
		case wire.OpError: // that of an operation before the one that failed is nil
			if a.Err = wire.CodeError(d.Int32()); a.Err != nil {
				return
			}
		case wire.OpCreate:
			a.Created = append(a.Created, d.String())
		}
		results++
	}
	t.verify(a, results)
}

func (t Transaction) call(c *attached) (a Answer) {
	results := 1
	switch t.op() {
	case wire.OpCreate, wire.OpCreateContainer:
		op, create := t[0].(*zk.CreateRequest), c.link.Conn.Create
		if t.op() == wire.OpCreateContainer {
			create = c.link.Conn.CreateContainer
		}
		var path string
		path, a.Err = create(op.Path, op.Data, op.Flags, op.Acl)
		a.Created = []string{path}
	case wire.OpDelete:
		op := t[0].(*zk.DeleteRequest)
		a.Err = c.link.Conn.Delete(op.Path, op.Version)
	default:
		var all []zk.MultiResponse
		all, a.Err = c.link.Conn.Multi(t...)
		for _, r := range all {
			if r.String != "" {
				a.Created = append(a.Created, r.String)
			}
		}
		results = len(all)
	}
	if a.Err == nil {
		t.verify(&a, results)
	}
	return a
}

// verify refuses results that do not fit, such as a path that the server cannot have given to a
// sequential znode. They leave the outcome unknown.
func (t Transaction) verify(a *Answer, results int) {
	if results != len(t) {
		a.Err = fmt.Errorf("the server answered %d results to %d operations", results, len(t))
		return
	}
	paths := a.Created
	for _, op := range t {
		op, ok := op.(*zk.CreateRequest)
		if !ok {
			continue
		}
		if len(paths) == 0 {
			a.Err = fmt.Errorf("the server did not answer the creation of %s", op.Path)
			return
		}
		number, ok := strings.CutPrefix(paths[0], op.Path)
		if !ok || (number != "") != (op.Flags&zk.FlagSequence != 0) || strings.Contains(number, "/") {
			a.Err = fmt.Errorf("the server answered %q to the creation of %s", paths[0], op.Path)
			return
		}
		paths = paths[1:]
	}
}
