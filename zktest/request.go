package zktest

import (
	"time"

	"github.com/tierlock/tierlock/internal/wire"
)

// beginLocked starts the next transaction.
func (s *Server) beginLocked() *txn {
	t := &txn{base: s.tree, ms: time.Now().UnixMilli()}
	t.zxid = s.tree.zxid + 1
	t.writes = make(map[string]*node)
	return t
}

// commitLocked applies a transaction everywhere; the events it causes are queued when it returns.
func (s *Server) commitLocked(t *txn) *delta {
	d := &t.delta
	s.tree.apply(d)
	if s.onChange != nil && len(d.changes) > 0 {
		s.onChange(View{s.tree}, d.changes)
	}
	for _, m := range s.members {
		m.commitLocked(d)
	}
	s.scheduleReaperLocked()
	return d
}

// answerLocked applies a request and queues its reply, in one step: a client can hear of no change between the two.
func (s *Server) answerLocked(c *conn, f Frame, xid int32, d *wire.Decoder) {
	var (
		body wire.Encoder
		code Code
		zxid = int64(-1) // the last one the member has applied
		last bool        // the connection ends with this reply
	)
	switch f.Op {
	case OpPing:
		xid = wire.XidPing
	case OpSetAuth:
		code, zxid = c.authLocked(d), 0
		last = code != codeOK
	case OpClose:
		zxid = s.endLocked(c.session).zxid
		c.member.drainLocked()
		last = true
	case OpCreate, OpCreate2, OpCreateContainer, OpDelete, OpSetData, OpSetACL, OpMulti:
		body, zxid, code = s.applyLocked(c.session, c.auth, f.Op, d)
		c.member.drainLocked()
	case OpSync:
		if !c.member.link.deposed {
			c.member.drainLocked()
		}
		body.String(d.String())
	case OpExists, OpGetData, OpGetACL, OpGetChildren, OpGetChildren2, OpSetWatches:
		body, code = c.readLocked(f.Op, d)
	default:
		code, zxid, last = CodeUnimplemented, 0, true
	}
	if zxid < 0 {
		zxid = c.member.viewLocked().zxid
	}
	c.out.push(outgoing{f, replyFrame(xid, zxid, code, body)})
	if last {
		c.finishLocked()
	}
}

// applyLocked runs a write of a session as a transaction. As on a real server, one that fails takes a zxid too.
func (s *Server) applyLocked(sess *session, auth []identity, op Op, d *wire.Decoder) (body wire.Encoder, zxid int64, code Code) {
	t := s.beginLocked()
	t.session, t.auth = sess.id, auth
	if op == OpMulti {
		body, code = t.multi(d)
	} else {
		body, code = t.single(op, d)
	}
	s.commitLocked(t)
	return body, t.zxid, code
}

func (t *txn) single(op Op, d *wire.Decoder) (wire.Encoder, Code) {
	o := readOperation(op, d)
	if d.Bad {
		return nil, CodeMarshallingError
	}
	r, code := t.do(o)
	return writeResult(o.op, r), code
}

func readOperation(op Op, d *wire.Decoder) operation {
	o := operation{op: op, path: d.String()}
	switch op {
	case OpCreate, OpCreate2, OpCreateContainer:
		o.data, o.acl, o.flags = d.Buffer(), readACL(d), d.Int32()
	case OpDelete, OpCheck:
		o.version = d.Int32()
	case OpSetData:
		o.data, o.version = d.Buffer(), d.Int32()
	case OpSetACL:
		o.acl, o.version = readACL(d), d.Int32()
	default:
		d.Bad = true
	}
	return o
}

func writeResult(op Op, r result) (body wire.Encoder) {
	switch op {
	case OpCreate:
		body.String(r.path)
	case OpCreate2, OpCreateContainer:
		body.String(r.path)
		writeStat(&body, r.stat)
	case OpSetData, OpSetACL:
		writeStat(&body, r.stat)
	}
	return body
}

func (c *conn) authLocked(d *wire.Decoder) Code {
	d.Int32() // type, always zero
	scheme, auth := d.String(), d.Buffer()
	if d.Bad || scheme != "digest" {
		return CodeAuthFailed
	}
	c.auth = append(c.auth, digest(auth))
	return codeOK
}

func (c *conn) readLocked(op Op, d *wire.Decoder) (body wire.Encoder, code Code) {
	t := c.member.viewLocked()
	if op == OpSetWatches {
		q := d.SetWatches()
		if d.Bad {
			return nil, CodeMarshallingError
		}
		c.member.watches.restore(c, t, q)
		return nil, codeOK
	}
	path := d.String()
	watch := op != OpGetACL && d.Bool()
	if d.Bad {
		return nil, CodeMarshallingError
	}
	n := t.nodes[path]
	switch op {
	case OpExists:
		return c.existsLocked(path, n, watch)
	case OpGetACL:
		return c.getACLLocked(n)
	}
	return c.getLocked(op, path, n, watch)
}

// existsLocked sets its watch even on a node that is not there, and asks no permission.
func (c *conn) existsLocked(path string, n *node, watch bool) (body wire.Encoder, code Code) {
	if watch {
		c.member.watches.data.add(path, c)
	}
	if n == nil {
		return nil, CodeNoNode
	}
	writeStat(&body, n.Stat())
	return body, codeOK
}

func (c *conn) getLocked(op Op, path string, n *node, watch bool) (body wire.Encoder, code Code) {
	if n == nil {
		return nil, CodeNoNode
	}
	if !permitted(n.acl, permRead, c.auth) {
		return nil, CodeNoAuth
	}
	table := c.member.watches.data
	if op == OpGetData {
		body.Buffer(n.data)
	} else {
		table = c.member.watches.child
		body.Strings(c.member.viewLocked().children[path].sorted())
	}
	if op != OpGetChildren {
		writeStat(&body, n.Stat())
	}
	if watch {
		table.add(path, c)
	}
	return body, codeOK
}

func (c *conn) getACLLocked(n *node) (body wire.Encoder, code Code) {
	switch {
	case n == nil:
		return nil, CodeNoNode
	case permitted(n.acl, permAdmin, c.auth):
		writeACL(&body, n.acl)
	case permitted(n.acl, permRead, c.auth):
		writeACL(&body, masked(n.acl))
	default:
		return nil, CodeNoAuth
	}
	writeStat(&body, n.Stat())
	return body, codeOK
}
