package zktest

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/wire"
)

// A delta is a committed transaction: its writes, and its changes in order. The changes trigger watches.
type delta struct {
	zxid    int64
	writes  map[string]*node // a nil node means that the node was deleted
	changes []Change
	acls    []acls // one element for each element of changes
}

// An acls has the ACLs that a node and its parent had when the node changed.
type acls struct{ node, parent []aclEntry }

// A txn is a transaction in preparation. It reads its own writes, and otherwise the tree. It never changes the tree, so a failed multi
// needs no undo.
type txn struct {
	delta
	base    *tree
	ms      int64 // time of the transaction
	session int64
	auth    []identity
}

// An operation is a write that a client may request. The field op determines which other fields are used.
type operation struct {
	op      int32
	path    string
	data    []byte
	acl     []aclEntry
	flags   int32
	version int32
}

// A result is the answer to a successful operation.
type result struct {
	path string
	stat zk.Stat
}

func (t *txn) get(path string) *node {
	if n, ok := t.writes[path]; ok {
		return n
	}
	return t.base.nodes[path]
}

// edit returns a copy of n, which the transaction will store at path.
func (t *txn) edit(path string, n *node) *node {
	c := *n
	t.writes[path] = &c
	return &c
}

// The method note records a change of the node at path. It is called while the node exists.
func (t *txn) note(op, path string) {
	parent, _ := splitPath(path)
	t.changes = append(t.changes, Change{Zxid: t.zxid, Op: op, Path: path, Session: t.session})
	t.acls = append(t.acls, acls{t.get(path).acl, t.get(parent).acl})
}

func (t *txn) do(o operation) (r result, code int32) {
	switch o.op {
	case wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer:
		return t.create(o)
	case wire.OpDelete:
		return result{}, t.delete(o.path, o.version)
	case wire.OpSetData:
		return t.setData(o)
	case wire.OpSetACL:
		return t.setACL(o)
	case wire.OpCheck:
		_, code := t.writable(o.path, permRead)
		if code == wire.CodeOK && !versionMatches(o.version, t.get(o.path).stat.Version) {
			code = wire.CodeBadVersion
		}
		return result{}, code
	}
	return result{}, wire.CodeUnimplemented
}

// The method create makes its checks in the server's order. An operation with two errors therefore gets the same code as from a real
// server.
func (t *txn) create(o operation) (r result, code int32) {
	mode, code := createMode(o.flags)
	if code != wire.CodeOK {
		return result{}, code
	}
	// The type of the request decides whether the node is a container. The request OpCreate with the flag of a container creates a plain
	// node.
	mode.container = o.op == wire.OpCreateContainer
	if strings.LastIndexByte(o.path, '/') < 0 || strings.ContainsRune(o.path, 0) {
		return result{}, wire.CodeBadArguments
	}
	acl, code := fixACL(o.acl, t.auth)
	if code != wire.CodeOK {
		return result{}, code
	}
	parentPath, _ := splitPath(o.path)
	parent := t.get(parentPath)
	if parent == nil {
		return result{}, wire.CodeNoNode
	}
	if !permitted(parent.acl, permCreate, t.auth) {
		return result{}, wire.CodeNoAuth
	}
	path := o.path
	if mode.sequential {
		path += fmt.Sprintf("%010d", parent.creates)
	}
	if !validPath(path) {
		return result{}, wire.CodeBadArguments
	}
	if t.get(path) != nil {
		return result{}, wire.CodeNodeExists
	}
	if parent.ephemeral() {
		return result{}, wire.CodeNoChildrenForEphemerals
	}
	parent = t.edit(parentPath, parent)
	parent.kids++
	// The server only increases the count. At 2^31-1 the count stays, and the server no longer updates Pzxid (ZOOKEEPER-3249).
	if parent.creates != math.MaxInt32 {
		parent.creates++
		parent.stat.Pzxid = t.zxid
	}
	n := &node{data: o.data, acl: acl, stat: zk.Stat{
		Czxid: t.zxid, Mzxid: t.zxid, Pzxid: t.zxid, Ctime: t.ms, Mtime: t.ms, EphemeralOwner: mode.owner(t.session),
	}}
	t.writes[path] = n
	t.note("create", path)
	return result{path: path, stat: n.Stat()}, wire.CodeOK
}

func (t *txn) delete(path string, version int32) (code int32) {
	if !strings.Contains(path, "/") || strings.ContainsRune(path, 0) || specialPath(path) {
		return wire.CodeBadArguments
	}
	parentPath, _ := splitPath(path)
	parent := t.get(parentPath)
	if parent == nil {
		return wire.CodeNoNode
	}
	if !permitted(parent.acl, permDelete, t.auth) {
		return wire.CodeNoAuth
	}
	n := t.get(path)
	switch {
	case n == nil:
		return wire.CodeNoNode
	case !versionMatches(version, n.stat.Version):
		return wire.CodeBadVersion
	case n.kids > 0:
		return wire.CodeNotEmpty
	}
	t.remove(path)
	return wire.CodeOK
}

// The method remove deletes a node. The caller knows that the node exists, and has checked the permissions.
func (t *txn) remove(path string) {
	parentPath, _ := splitPath(path)
	parent := t.edit(parentPath, t.get(parentPath))
	parent.kids--
	parent.stat.Pzxid = t.zxid
	t.note("delete", path)
	t.writes[path] = nil
}

func (t *txn) setData(o operation) (r result, code int32) {
	n, code := t.writable(o.path, permWrite)
	if code != wire.CodeOK {
		return result{}, code
	}
	if !versionMatches(o.version, n.stat.Version) {
		return result{}, wire.CodeBadVersion
	}
	n = t.edit(o.path, n)
	n.data = o.data
	n.stat.Version++
	n.stat.Mzxid, n.stat.Mtime = t.zxid, t.ms
	t.note("setData", o.path)
	return result{stat: n.Stat()}, wire.CodeOK
}

func (t *txn) setACL(o operation) (r result, code int32) {
	if !validPath(o.path) {
		return result{}, wire.CodeBadArguments
	}
	acl, code := fixACL(o.acl, t.auth)
	if code != wire.CodeOK {
		return result{}, code
	}
	n, code := t.writable(o.path, permAdmin)
	if code != wire.CodeOK {
		return result{}, code
	}
	if !versionMatches(o.version, n.stat.Aversion) {
		return result{}, wire.CodeBadVersion
	}
	n = t.edit(o.path, n)
	n.acl = acl
	n.stat.Aversion++
	t.note("setACL", o.path)
	return result{stat: n.Stat()}, wire.CodeOK
}

func (t *txn) writable(path string, perm int32) (n *node, code int32) {
	n = t.get(path)
	switch {
	case !validPath(path):
		return nil, wire.CodeBadArguments
	case n == nil:
		return nil, wire.CodeNoNode
	case !permitted(n.acl, perm, t.auth):
		return nil, wire.CodeNoAuth
	}
	return n, wire.CodeOK
}

func versionMatches(want, have int32) bool { return want == -1 || want == have }

const flagContainer = 4

// A mode is a kind of node that the operation create can make.
type mode struct{ ephemeral, sequential, container bool }

func createMode(flags int32) (m mode, code int32) {
	switch flags {
	case 0, 1, 2, 3, flagContainer:
		return mode{ephemeral: flags&1 != 0, sequential: flags&2 != 0}, wire.CodeOK
	case 5, 6: // nodes with a time to live; servers refuse these unless they are configured otherwise
		return mode{}, wire.CodeUnimplemented
	}
	return mode{}, wire.CodeBadArguments
}

func (m mode) owner(session int64) int64 {
	switch {
	case m.container:
		return containerOwner
	case m.ephemeral:
		return session
	}
	return 0
}

// multi executes several operations as one transaction: all of them or none.
func (t *txn) multi(d *wire.Decoder) (body wire.Encoder, code int32) {
	ops := readMulti(d)
	if d.Bad {
		return nil, wire.CodeMarshallingError
	}
	results := make([]result, len(ops))
	for i, o := range ops {
		if results[i], code = t.do(o); code != wire.CodeOK {
			t.writes, t.changes, t.acls = nil, nil, nil
			return failedMulti(len(ops), i, code), wire.CodeOK
		}
	}
	for i, o := range ops {
		kind := o.op
		if kind == wire.OpCreateContainer {
			kind = wire.OpCreate2
		}
		body.MultiHeader(wire.MultiHeader{Op: kind})
		body = append(body, writeResult(o.op, results[i])...)
	}
	body.MultiHeader(wire.LastOfMulti)
	return body, wire.CodeOK
}

func readMulti(d *wire.Decoder) (ops []operation) {
	for {
		h := d.MultiHeader()
		if h.Done || d.Bad {
			return ops
		}
		o := readOperation(h.Op, d)
		switch o.op {
		case wire.OpSetACL:
			d.Bad = true // this is the only write that a multi cannot contain
		case wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer:
			// In a multi, the flag decides which kind of node is created and which type the result has.
			o.op = wire.OpCreate
			if o.flags == flagContainer {
				o.op = wire.OpCreateContainer
			}
		}
		ops = append(ops, o)
	}
}

// failedMulti returns the answer to a multi of n operations if one of them was refused: the one at the index failed. The operations before
// it have the code zero, but were not executed. The operations after it were not tried.
func failedMulti(n, failed int, cause int32) (body wire.Encoder) {
	for i := range n {
		code := int32(wire.CodeOK)
		switch {
		case i == failed:
			code = cause
		case i > failed:
			code = wire.CodeRuntimeInconsistency
		}
		body.MultiHeader(wire.MultiHeader{Op: wire.OpError, Code: code})
		body.Int32(code)
	}
	body.MultiHeader(wire.LastOfMulti)
	return body
}

// scheduleReaperLocked schedules the next check of containers if there are any. A timer that is not needed would prevent a synctest bubble
// from detecting a deadlock.
func (s *Server) scheduleReaperLocked() {
	if s.reaper == nil && len(s.tree.containers) > 0 && !s.closed {
		s.reaper = time.AfterFunc(s.cfg.ContainerCheck, s.reapContainers)
	}
}

// reapContainers deletes the empty containers that have had children. Each is deleted in a separate transaction.
func (s *Server) reapContainers() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.reaper = nil
	for _, path := range s.tree.containers.sorted() {
		if n := s.tree.nodes[path]; s.frozen == nil && n.creates > 0 && n.kids == 0 {
			t := s.beginLocked()
			t.remove(path)
			s.commitLocked(t)
		}
	}
	s.scheduleReaperLocked()
}
