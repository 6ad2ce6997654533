package zktest

import (
	"fmt"
	"math"
	"strings"
)

// A delta is a committed transaction: what it wrote, and what happened in order, which is what watches hear of.
type delta struct {
	zxid    int64
	writes  map[string]*node // nil: deleted
	changes []Change
	acls    []acls // of changes, one each
}

// acls are the ACLs of a node that changed and of its parent, at the time of the change.
type acls struct{ node, parent []aclEntry }

// A txn is a transaction being prepared. It reads the tree through its own writes and never touches the tree itself,
// so that a failed multi leaves nothing to undo.
type txn struct {
	delta
	base    *tree
	ms      int64 // time of the transaction
	session int64
	auth    []identity
}

// An operation is any of the writes a client may ask for; which fields count depends on op.
type operation struct {
	op      Op
	path    string
	data    []byte
	acl     []aclEntry
	flags   int32
	version int32
}

// A result is what a successful operation answers.
type result struct {
	path string
	stat Stat
}

func (t *txn) get(path string) *node {
	if n, ok := t.writes[path]; ok {
		return n
	}
	return t.base.nodes[path]
}

// edit returns a copy of n that the transaction will put at path.
func (t *txn) edit(path string, n *node) *node {
	c := *n
	t.writes[path] = &c
	return &c
}

// note is called while there is a node at path.
func (t *txn) note(kind ChangeKind, path string) {
	parent, _ := splitPath(path)
	t.changes = append(t.changes, Change{Zxid: t.zxid, Kind: kind, Path: path, Session: t.session})
	t.acls = append(t.acls, acls{t.get(path).acl, t.get(parent).acl})
}

func (t *txn) do(o operation) (result, Code) {
	switch o.op {
	case OpCreate, OpCreate2, OpCreateContainer:
		return t.create(o)
	case OpDelete:
		return result{}, t.delete(o.path, o.version)
	case OpSetData:
		return t.setData(o)
	case OpSetACL:
		return t.setACL(o)
	case OpCheck:
		_, code := t.writable(o.path, permRead)
		if code == codeOK && !versionMatches(o.version, t.get(o.path).stat.Version) {
			code = CodeBadVersion
		}
		return result{}, code
	}
	return result{}, CodeUnimplemented
}

// create checks in the server's order, so that an operation wrong in two ways fails with the same code.
func (t *txn) create(o operation) (result, Code) {
	mode, code := createMode(o.flags)
	if code != codeOK {
		return result{}, code
	}
	// The request decides this, not the flag: create with a container's flag makes a plain node.
	mode.container = o.op == OpCreateContainer
	if strings.LastIndexByte(o.path, '/') < 0 || strings.ContainsRune(o.path, 0) {
		return result{}, CodeBadArguments
	}
	acl, code := fixACL(o.acl, t.auth)
	if code != codeOK {
		return result{}, code
	}
	parentPath, _ := splitPath(o.path)
	parent := t.get(parentPath)
	if parent == nil {
		return result{}, CodeNoNode
	}
	if !permitted(parent.acl, permCreate, t.auth) {
		return result{}, CodeNoAuth
	}
	path := o.path
	if mode.sequential {
		path += fmt.Sprintf("%010d", parent.creates)
	}
	if !validPath(path) {
		return result{}, CodeBadArguments
	}
	if t.get(path) != nil {
		return result{}, CodeNodeExists
	}
	if parent.ephemeral() {
		return result{}, CodeNoChildrenForEphemerals
	}
	parent = t.edit(parentPath, parent)
	parent.kids++
	// The server raises the count only, so past 2^31-1 it stays there and stops marking the change (ZOOKEEPER-3249).
	if parent.creates != math.MaxInt32 {
		parent.creates++
		parent.stat.Pzxid = t.zxid
	}
	n := &node{data: o.data, acl: acl, stat: Stat{
		Czxid: t.zxid, Mzxid: t.zxid, Pzxid: t.zxid, Ctime: t.ms, Mtime: t.ms, EphemeralOwner: mode.owner(t.session),
	}}
	t.writes[path] = n
	t.note(Created, path)
	return result{path: path, stat: n.Stat()}, codeOK
}

func (t *txn) delete(path string, version int32) Code {
	if !strings.Contains(path, "/") || strings.ContainsRune(path, 0) || specialPath(path) {
		return CodeBadArguments
	}
	parentPath, _ := splitPath(path)
	parent := t.get(parentPath)
	if parent == nil {
		return CodeNoNode
	}
	if !permitted(parent.acl, permDelete, t.auth) {
		return CodeNoAuth
	}
	n := t.get(path)
	switch {
	case n == nil:
		return CodeNoNode
	case !versionMatches(version, n.stat.Version):
		return CodeBadVersion
	case n.kids > 0:
		return CodeNotEmpty
	}
	t.remove(path)
	return codeOK
}

// remove deletes a node that is known to exist, and asks no permission.
func (t *txn) remove(path string) {
	parentPath, _ := splitPath(path)
	parent := t.edit(parentPath, t.get(parentPath))
	parent.kids--
	parent.stat.Pzxid = t.zxid
	t.note(Deleted, path)
	t.writes[path] = nil
}

func (t *txn) setData(o operation) (result, Code) {
	n, code := t.writable(o.path, permWrite)
	if code != codeOK {
		return result{}, code
	}
	if !versionMatches(o.version, n.stat.Version) {
		return result{}, CodeBadVersion
	}
	n = t.edit(o.path, n)
	n.data = o.data
	n.stat.Version++
	n.stat.Mzxid, n.stat.Mtime = t.zxid, t.ms
	t.note(DataChanged, o.path)
	return result{stat: n.Stat()}, codeOK
}

func (t *txn) setACL(o operation) (result, Code) {
	if !validPath(o.path) {
		return result{}, CodeBadArguments
	}
	acl, code := fixACL(o.acl, t.auth)
	if code != codeOK {
		return result{}, code
	}
	n, code := t.writable(o.path, permAdmin)
	if code != codeOK {
		return result{}, code
	}
	if !versionMatches(o.version, n.stat.Aversion) {
		return result{}, CodeBadVersion
	}
	n = t.edit(o.path, n)
	n.acl = acl
	n.stat.Aversion++
	t.note(ACLChanged, o.path)
	return result{stat: n.Stat()}, codeOK
}

func (t *txn) writable(path string, perm int32) (*node, Code) {
	n := t.get(path)
	switch {
	case !validPath(path):
		return nil, CodeBadArguments
	case n == nil:
		return nil, CodeNoNode
	case !permitted(n.acl, perm, t.auth):
		return nil, CodeNoAuth
	}
	return n, codeOK
}

func versionMatches(want, have int32) bool { return want == -1 || want == have }

const flagContainer = 4

// A mode is a kind of node that create can make.
type mode struct{ ephemeral, sequential, container bool }

func createMode(flags int32) (m mode, code Code) {
	switch flags {
	case 0, 1, 2, 3, flagContainer:
		return mode{ephemeral: flags&1 != 0, sequential: flags&2 != 0}, codeOK
	case 5, 6: // nodes with a time to live, which servers refuse unless configured otherwise
		return mode{}, CodeUnimplemented
	}
	return mode{}, CodeBadArguments
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
