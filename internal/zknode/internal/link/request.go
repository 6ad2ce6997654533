package link

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/wire"
)

// A Request is sent to the server, alone or together with others; see [Link.Ask]. It is one [read] or one [Transaction].
type Request interface {
	// The method ops returns the operations of the request.
	ops() []any
	// The method call sends the request through the client library.
	call(*attached) Answer
}

// An Answer is the result of a request. The type of the request determines which fields are set.
type Answer struct {
	Err      error
	Created  []string // the paths of the created ephemeral nodes
	Children []string
	Stat     zk.Stat
	Data     []byte // nil if it is longer than [maxData]
	Refused  any    // the refused operation of a transaction, to which Err belongs, if it is known

	// The following fields are not set over a connection that the program has made.
	Zxid    int64    // the id of the transaction
	Session *Session // the session under which the request was executed
}

// A read reads a znode, or lists its children, and may set a watch. If the node is missing, it leaves no watch. The operation exists is not
// used, because it would leave a watch that stays until the node is created.
type read struct {
	path    string
	list    bool
	Watch   bool     // the request asks for a watch
	watcher *Watcher // is notified of the event
}

// List returns a request for the names of the children of a path.
func List(path string) Request { return read{path: path, list: true} }

// Get returns a request for the state and the content of a znode.
func Get(path string) Request { return read{path: path} }

func (r read) ops() []any { return []any{r} }

// maxData is the size up to which the content of a node is kept. No content that this package writes is longer.
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
		a = Answer{Err: wire.Named(a.Err)}
	} else if a.Data, a.Stat = kept(a.Data), *stat; r.Watch {
		c.forward(events)
	}
	if r.Watch {
		c.link.Events.answered(r, a)
	}
	return a
}

// A removal is a request that ends the watch on a path.
type removal string

func (r removal) ops() []any { return []any{r} }

func (r removal) call(*attached) Answer { panic("zklock: the client library cannot remove a watch") }

// A Transaction creates and deletes znodes: all of them or none. The library cannot decode the answer to the creation of a container, which
// is a node that the server removes when it is empty. In that case the error is zk.ErrAPIError.
type Transaction []any

func (t Transaction) ops() []any { return t }

func (t Transaction) call(c *attached) (a Answer) {
	results, err := c.link.Conn.Multi(t...)
	switch {
	case err != nil:
		a.Err = wire.Named(err)
		if i := slices.IndexFunc(results, func(r zk.MultiResponse) bool { return r.Error != nil }); i >= 0 && i < len(t) {
			a.Refused = t[i]
		}
		return a
	case len(results) != len(t):
		return Answer{Err: errMisfit}
	}
	for i, r := range results {
		if op, creates := t[i].(*zk.CreateRequest); creates {
			a.create(op, r.String)
		}
	}
	return a
}

// The method create records the path of a created node. If the answer names a path that this request cannot have created, Err is set,
// because it is then unknown which node the server created.
func (a *Answer) create(op *zk.CreateRequest, path string) {
	number, ok := strings.CutPrefix(path, op.Path)
	if !ok || (number != "") != (op.Flags&zk.FlagSequence != 0) || strings.Contains(number, "/") {
		a.Err = fmt.Errorf("the server answered %q to the creation of %s", path, op.Path)
	}
	if op.Flags&zk.FlagEphemeral != 0 {
		a.Created = append(a.Created, path)
	}
}

// opOf returns the type of an operation in a multi.
func opOf(op any) int32 {
	switch op := op.(type) {
	case read:
		if op.list {
			return wire.OpGetChildren
		}
		return wire.OpGetData
	case removal:
		return wire.OpRemoveWatches
	case *zk.CreateRequest:
		return wire.OpCreate
	case *zk.DeleteRequest:
		return wire.OpDelete
	case *zk.CheckVersionRequest:
		return wire.OpCheck
	}
	panic(fmt.Sprintf("zklock: no operation of a request: %T", op))
}

// resultOf returns the type of the result of an operation in a multi.
func resultOf(op any) int32 {
	if q, ok := op.(*zk.CreateRequest); ok && q.Flags == zk.FlagContainer {
		return wire.OpCreate2
	}
	return opOf(op)
}

// encode appends the operations of a multi. A header precedes each operation.
func encode(e wire.Encoder, ops []any) wire.Encoder {
	for _, op := range ops {
		e.MultiHeader(wire.MultiHeader{Op: opOf(op), Code: -1})
		switch op := op.(type) {
		case read:
			e.String(op.path)
			e.Bool(op.Watch)
		case removal:
			e.RemoveWatches(wire.RemoveWatches{Path: string(op), Kind: wire.AnyWatch})
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
	return e
}

// decode reads the result of an operation that was executed.
func (a *Answer) decode(d *wire.Decoder, op any) {
	switch op := op.(type) {
	case read:
		if op.list {
			a.Children = d.Strings()
			return
		}
		a.Data = kept(d.Buffer()) // copied, because the memory of the frame is reused
		a.Stat = zk.Stat{
			Czxid: d.Int64(), Mzxid: d.Int64(), Ctime: d.Int64(), Mtime: d.Int64(),
			Version: d.Int32(), Cversion: d.Int32(), Aversion: d.Int32(),
			EphemeralOwner: d.Int64(), DataLength: d.Int32(), NumChildren: d.Int32(), Pzxid: d.Int64(),
		}
	case *zk.CreateRequest:
		a.create(op, d.String())
		if op.Flags == zk.FlagContainer {
			d.Take(wire.StatSize)
		}
	}
}

// decodeOneOf decodes the result of an operation in a multi. If the operation was refused, it returns the reason.
func (a *Answer) decodeOneOf(d *wire.Decoder, op any) (refusal error) {
	switch h := d.MultiHeader(); {
	case h.Done:
	case h.Op == resultOf(op):
		a.decode(d, op)
		return nil
	case h.Op == wire.OpError:
		if refusal = wire.CodeError(d.Int32()); refusal != nil {
			a.Err = refusal
			return refusal
		}
	}
	a.Err = errMisfit
	return nil
}
