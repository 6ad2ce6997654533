package zktest

import (
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/wire"
)

// beginLocked starts the next transaction.
func (s *Server) beginLocked() *txn {
	t := &txn{base: s.tree, ms: time.Now().UnixMilli()}
	t.zxid = s.tree.zxid + 1
	t.writes = make(map[string]*node)
	return t
}

// commitLocked applies a transaction on all members. When it returns, the events of the transaction are queued.
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

// answerLocked applies a request and queues its reply in one step, so that the client gets no event in between.
func (s *Server) answerLocked(c *conn, f Frame, h wire.RequestHeader, d *wire.Decoder) {
	var (
		body wire.Encoder
		code int32
		zxid = int64(-1) // the id of the last transaction that the member has applied
		last bool        // the connection ends after this reply
	)
	switch h.Op {
	case wire.OpPing:
		h.Xid = wire.XidPing
	case wire.OpSetAuth:
		code, zxid = c.authLocked(d), 0
		last = code != wire.CodeOK
	case wire.OpClose:
		zxid = s.endLocked(c.session).zxid
		c.member.drainLocked()
		last = true
	case wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer, wire.OpDelete, wire.OpSetData, wire.OpSetACL, wire.OpMulti:
		body, zxid, code = s.applyLocked(c.session, c.auth, h.Op, d)
		c.member.drainLocked()
	case wire.OpSync:
		if !c.member.link.deposed {
			c.member.drainLocked()
		}
		body.String(d.String())
	case wire.OpExists, wire.OpGetData, wire.OpGetACL, wire.OpGetChildren, wire.OpGetChildren2, wire.OpSetWatches:
		body, code = c.readLocked(h.Op, d)
	case wire.OpMultiRead:
		body, code = c.multiReadLocked(d)
	case wire.OpRemoveWatches:
		code = c.removeWatchesLocked(d)
	default:
		code, zxid, last = wire.CodeUnimplemented, 0, true
	}
	if zxid < 0 {
		zxid = c.member.viewLocked().zxid
	}
	c.out.push(outgoing{f, replyFrame(h.Xid, zxid, code, body)})
	if last {
		c.finishLocked()
	}
}

// applyLocked runs a write of a session as a transaction. As on a real server, a failed write uses up a zxid as well.
func (s *Server) applyLocked(sess *session, auth []identity, op int32, d *wire.Decoder) (body wire.Encoder, zxid int64, code int32) {
	t := s.beginLocked()
	t.session, t.auth = sess.id, auth
	if op == wire.OpMulti {
		body, code = t.multi(d)
	} else {
		body, code = t.single(op, d)
	}
	s.commitLocked(t)
	return body, t.zxid, code
}

func (t *txn) single(op int32, d *wire.Decoder) (body wire.Encoder, code int32) {
	o := readOperation(op, d)
	if d.Bad {
		return nil, wire.CodeMarshallingError
	}
	r, code := t.do(o)
	return writeResult(o.op, r), code
}

func readOperation(op int32, d *wire.Decoder) operation {
	o := operation{op: op, path: d.String()}
	switch op {
	case wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer:
		o.data, o.acl, o.flags = d.Buffer(), readACL(d), d.Int32()
	case wire.OpDelete, wire.OpCheck:
		o.version = d.Int32()
	case wire.OpSetData:
		o.data, o.version = d.Buffer(), d.Int32()
	case wire.OpSetACL:
		o.acl, o.version = readACL(d), d.Int32()
	default:
		d.Bad = true
	}
	return o
}

func writeResult(op int32, r result) (body wire.Encoder) {
	switch op {
	case wire.OpCreate:
		body.String(r.path)
	case wire.OpCreate2, wire.OpCreateContainer:
		body.String(r.path)
		writeStat(&body, r.stat)
	case wire.OpSetData, wire.OpSetACL:
		writeStat(&body, r.stat)
	}
	return body
}

func (c *conn) authLocked(d *wire.Decoder) (code int32) {
	d.Int32() // the type, which is always zero
	scheme, auth := d.String(), d.Buffer()
	if d.Bad || scheme != "digest" {
		return wire.CodeAuthFailed
	}
	c.auth = append(c.auth, digest(auth))
	return wire.CodeOK
}

func (c *conn) readLocked(op int32, d *wire.Decoder) (body wire.Encoder, code int32) {
	t := c.member.viewLocked()
	if op == wire.OpSetWatches {
		q := d.SetWatches()
		if d.Bad {
			return nil, wire.CodeMarshallingError
		}
		c.member.watches.restore(c, t, q)
		return nil, wire.CodeOK
	}
	path := d.String()
	watch := op != wire.OpGetACL && d.Bool()
	if d.Bad {
		return nil, wire.CodeMarshallingError
	}
	n := t.nodes[path]
	switch op {
	case wire.OpExists:
		return c.existsLocked(path, n, watch)
	case wire.OpGetACL:
		return c.getACLLocked(n)
	}
	return c.getLocked(op, path, n, watch)
}

// existsLocked sets its watch even if the node is missing. It needs no permission.
func (c *conn) existsLocked(path string, n *node, watch bool) (body wire.Encoder, code int32) {
	if watch {
		c.member.watches.data.add(path, c)
	}
	if n == nil {
		return nil, wire.CodeNoNode
	}
	writeStat(&body, n.Stat())
	return body, wire.CodeOK
}

func (c *conn) getLocked(op int32, path string, n *node, watch bool) (body wire.Encoder, code int32) {
	if n == nil {
		return nil, wire.CodeNoNode
	}
	if !permitted(n.acl, permRead, c.auth) {
		return nil, wire.CodeNoAuth
	}
	table := c.member.watches.data
	if op == wire.OpGetData {
		body.Buffer(n.data)
	} else {
		table = c.member.watches.child
		body.Strings(c.member.viewLocked().children[path].sorted())
	}
	if op != wire.OpGetChildren {
		writeStat(&body, n.Stat())
	}
	if watch {
		table.add(path, c)
	}
	return body, wire.CodeOK
}

// multiReadLocked answers several reads, each independently of the others. It sets no watches.
func (c *conn) multiReadLocked(d *wire.Decoder) (body wire.Encoder, code int32) {
	for h := d.MultiHeader(); !h.Done; h = d.MultiHeader() {
		path := d.String()
		d.Bool() // says whether to set a watch
		if d.Bad || h.Op != wire.OpGetChildren && h.Op != wire.OpGetData {
			return nil, wire.CodeMarshallingError
		}
		result, code := c.getLocked(h.Op, path, c.member.viewLocked().nodes[path], false)
		if code != wire.CodeOK {
			h.Op = wire.OpError
			result.Int32(code)
		}
		body.MultiHeader(wire.MultiHeader{Op: h.Op, Code: code})
		body = append(body, result...)
	}
	body.MultiHeader(wire.LastOfMulti)
	return body, wire.CodeOK
}

// removeWatchesLocked removes the watches of one kind on a path. The kinds are children, data, and any.
func (c *conn) removeWatchesLocked(d *wire.Decoder) (code int32) {
	q := d.RemoveWatches()
	if d.Bad || q.Kind < 1 || q.Kind > wire.AnyWatch {
		return wire.CodeMarshallingError
	}
	code = wire.CodeNoWatcher
	for kind, table := range map[int32]watchTable{1: c.member.watches.child, 2: c.member.watches.data} {
		if _, watched := table[q.Path][c]; watched && (q.Kind == kind || q.Kind == wire.AnyWatch) {
			table.remove(q.Path, c)
			code = wire.CodeOK
		}
	}
	return code
}

func (c *conn) getACLLocked(n *node) (body wire.Encoder, code int32) {
	switch {
	case n == nil:
		return nil, wire.CodeNoNode
	case permitted(n.acl, permAdmin, c.auth):
		writeACL(&body, n.acl)
	case permitted(n.acl, permRead, c.auth):
		writeACL(&body, masked(n.acl))
	default:
		return nil, wire.CodeNoAuth
	}
	writeStat(&body, n.Stat())
	return body, wire.CodeOK
}

func readACL(d *wire.Decoder) []aclEntry {
	list := make([]aclEntry, d.Count(12))
	for i := range list {
		list[i] = aclEntry{perms: d.Int32(), id: identity{scheme: d.String(), id: d.String()}}
	}
	return list
}

func writeACL(e *wire.Encoder, list []aclEntry) {
	e.Int32(int32(len(list)))
	for _, a := range list {
		e.Int32(a.perms)
		e.String(a.id.scheme)
		e.String(a.id.id)
	}
}

func writeStat(e *wire.Encoder, s zk.Stat) {
	e.Int64(s.Czxid)
	e.Int64(s.Mzxid)
	e.Int64(s.Ctime)
	e.Int64(s.Mtime)
	e.Int32(s.Version)
	e.Int32(s.Cversion)
	e.Int32(s.Aversion)
	e.Int64(s.EphemeralOwner)
	e.Int32(s.DataLength)
	e.Int32(s.NumChildren)
	e.Int64(s.Pzxid)
}

// replyFrame returns the frame of a reply. If code is an error, the reply has no body.
func replyFrame(xid int32, zxid int64, code int32, body []byte) []byte {
	var e wire.Encoder
	e.ReplyHeader(wire.ReplyHeader{Xid: xid, Zxid: zxid, Code: code})
	if code == wire.CodeOK {
		e = append(e, body...)
	}
	return wire.Frame(e)
}

func eventFrame(kind zk.EventType, path string) []byte {
	var e wire.Encoder
	e.Event(wire.Event{Type: kind, State: zk.StateSyncConnected, Path: path})
	return replyFrame(wire.XidEvent, -1, wire.CodeOK, e)
}
