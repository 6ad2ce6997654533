package zklock

import (
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/wire"
)

// A transaction creates and deletes znodes, all or none. One operation alone needs no multi,
// unless it is a check, which a server takes in no other way.
type transaction []any

func (t transaction) op() int32 {
	if len(t) == 1 && opOf(t[0]) != wire.OpCheck {
		return opOf(t[0])
	}
	return wire.OpMulti
}

func opOf(op any) int32 {
	switch op.(type) {
	case *zk.CreateRequest:
		return wire.OpCreate
	case *zk.DeleteRequest:
		return wire.OpDelete
	case *zk.CheckVersionRequest:
		return wire.OpCheck
	}
	panic(fmt.Sprintf("zklock: no operation of a transaction: %T", op))
}

func (t transaction) encode(e *wire.Encoder) {
	if t.op() != wire.OpMulti {
		encodeOp(e, t[0])
		return
	}
	for _, op := range t {
		e.MultiHeader(wire.MultiHeader{Op: opOf(op), Code: -1})
		encodeOp(e, op)
	}
	e.MultiHeader(wire.LastOfMulti)
}

func encodeOp(e *wire.Encoder, op any) {
	switch op := op.(type) {
	case *zk.CreateRequest:
		e.String(op.Path)
		e.Buffer(op.Data)
		encodeACL(e, op.Acl)
		e.Int32(op.Flags)
	case *zk.DeleteRequest:
		e.String(op.Path)
		e.Int32(op.Version)
	case *zk.CheckVersionRequest:
		e.String(op.Path)
		e.Int32(op.Version)
	}
}

func encodeACL(e *wire.Encoder, acl []zk.ACL) {
	e.Int32(int32(len(acl)))
	for _, a := range acl {
		e.Int32(a.Perms)
		e.String(a.Scheme)
		e.String(a.ID)
	}
}

func (t transaction) decode(d *wire.Decoder, a *answer) {
	if t.op() != wire.OpMulti {
		if t.op() == wire.OpCreate {
			a.created = []string{d.String()}
		}
		t.verify(a, 1)
		return
	}
	results := 0
	for h := d.MultiHeader(); !h.Done && !d.Bad; h = d.MultiHeader() {
		switch h.Op {
		case wire.OpError: // that of an operation before the one that failed is nil
			if a.err = codeError(d.Int32()); a.err != nil {
				return
			}
		case wire.OpCreate:
			a.created = append(a.created, d.String())
		}
		results++
	}
	t.verify(a, results)
}

func (t transaction) call(c *Client) (a answer) {
	results := 1
	switch t.op() {
	case wire.OpCreate:
		op := t[0].(*zk.CreateRequest)
		var path string
		path, a.err = c.conn.Create(op.Path, op.Data, op.Flags, op.Acl)
		a.created = []string{path}
	case wire.OpDelete:
		op := t[0].(*zk.DeleteRequest)
		a.err = c.conn.Delete(op.Path, op.Version)
	default:
		var all []zk.MultiResponse
		all, a.err = c.conn.Multi(t...)
		for _, r := range all {
			if r.String != "" {
				a.created = append(a.created, r.String)
			}
		}
		results = len(all)
	}
	if a.err == nil {
		t.verify(&a, results)
	}
	return a
}

// verify refuses results that do not fit, such as a path that the server cannot have given to a
// sequential znode. They leave the outcome unknown.
func (t transaction) verify(a *answer, results int) {
	if results != len(t) {
		a.err = fmt.Errorf("the server answered %d results to %d operations", results, len(t))
		return
	}
	paths := a.created
	for _, op := range t {
		op, ok := op.(*zk.CreateRequest)
		if !ok {
			continue
		}
		if len(paths) == 0 {
			a.err = fmt.Errorf("the server did not answer the creation of %s", op.Path)
			return
		}
		number, ok := strings.CutPrefix(paths[0], op.Path)
		if !ok || number == "" || strings.Contains(number, "/") {
			a.err = fmt.Errorf("the server answered %q to the creation of %s", paths[0], op.Path)
			return
		}
		paths = paths[1:]
	}
}

// A building creates a parent: a container, which the server removes when it is empty, or a
// plain node where it knows none.
type building struct {
	path  string
	acl   []zk.ACL
	plain bool
}

func (b building) op() int32 {
	if b.plain {
		return wire.OpCreate
	}
	return wire.OpCreateContainer
}

func (b building) request() *zk.CreateRequest {
	if b.plain {
		return &zk.CreateRequest{Path: b.path, Acl: b.acl}
	}
	return &zk.CreateRequest{Path: b.path, Data: []byte(containerData), Acl: b.acl, Flags: zk.FlagContainer}
}

func (b building) encode(e *wire.Encoder) { encodeOp(e, b.request()) }

func (b building) decode(*wire.Decoder, *answer) {}

func (b building) call(c *Client) (a answer) {
	create := c.conn.Create
	if !b.plain {
		create = c.conn.CreateContainer
	}
	q := b.request()
	_, a.err = create(q.Path, q.Data, q.Flags, q.Acl)
	return a
}
