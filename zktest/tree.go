package zktest

import (
	"maps"
	"math"
	"slices"
	"strings"
)

// containerOwner is the EphemeralOwner by which a server marks a container; clients see zero.
const containerOwner = math.MinInt64

// A Stat describes a node, as ZooKeeper's own Stat does. Times are milliseconds of the Unix epoch.
type Stat struct {
	Czxid          int64 // transaction that created the node
	Mzxid          int64 // transaction that last set its data
	Ctime          int64
	Mtime          int64
	Version        int32 // times the data was set
	Cversion       int32 // children created and deleted
	Aversion       int32 // times the ACL was set
	EphemeralOwner int64 // session of an ephemeral node, else zero
	DataLength     int32
	NumChildren    int32
	Pzxid          int64 // transaction that last created or deleted a child
}

// A node never changes once it is in a tree: a transaction replaces it.
type node struct {
	data    []byte
	acl     []aclEntry
	stat    Stat  // Cversion, DataLength and NumChildren are not used; see Stat
	creates int32 // children ever created; the next sequence number
	kids    int32
}

// Stat is the node's Stat as clients see it. The server stores the count of creations only.
func (n *node) Stat() Stat {
	s := n.stat
	s.Cversion = n.creates*2 - n.kids
	s.DataLength = int32(len(n.data))
	s.NumChildren = n.kids
	if n.container() {
		s.EphemeralOwner = 0
	}
	return s
}

func (n *node) ephemeral() bool { return n.stat.EphemeralOwner != 0 && !n.container() }
func (n *node) container() bool { return n.stat.EphemeralOwner == containerOwner }

type pathSet map[string]struct{}

func (s pathSet) sorted() []string { return slices.Sorted(maps.Keys(s)) }

// A tree is the state of one server.
type tree struct {
	zxid       int64 // last transaction applied
	nodes      map[string]*node
	children   map[string]pathSet // by parent: names
	ephemerals map[int64]pathSet  // by session: paths
	containers pathSet
}

func newTree() *tree {
	t := &tree{
		nodes:      make(map[string]*node),
		children:   make(map[string]pathSet),
		ephemerals: make(map[int64]pathSet),
		containers: make(pathSet),
	}
	for path, kids := range map[string]int32{"/": 1, "/zookeeper": 2, "/zookeeper/quota": 0, "/zookeeper/config": 0} {
		t.set(path, &node{data: []byte{}, acl: worldAll, kids: kids})
	}
	config := t.nodes["/zookeeper/config"]
	config.acl, config.stat.Aversion = []aclEntry{{perms: permRead, id: anyone}}, -1
	return t
}

// clone is a copy that later transactions do not reach.
func (t *tree) clone() *tree {
	c := &tree{
		zxid:       t.zxid,
		nodes:      maps.Clone(t.nodes),
		children:   make(map[string]pathSet, len(t.children)),
		ephemerals: make(map[int64]pathSet, len(t.ephemerals)),
		containers: maps.Clone(t.containers),
	}
	for parent, names := range t.children {
		c.children[parent] = maps.Clone(names)
	}
	for session, paths := range t.ephemerals {
		c.ephemerals[session] = maps.Clone(paths)
	}
	return c
}

// apply makes a committed transaction visible.
func (t *tree) apply(d *delta) {
	t.zxid = d.zxid
	for path, n := range d.writes {
		t.set(path, n)
	}
}

// set puts n at path, or deletes the node there if n is nil, and keeps the indexes.
func (t *tree) set(path string, n *node) {
	old := t.nodes[path]
	if old == n {
		return
	}
	if old != nil {
		t.unindex(path, old)
	}
	if n == nil {
		delete(t.nodes, path)
		return
	}
	t.nodes[path] = n
	if path != "/" {
		parent, name := splitPath(path)
		insert(t.children, parent, name)
	}
	if n.ephemeral() {
		insert(t.ephemerals, n.stat.EphemeralOwner, path)
	}
	if n.container() {
		t.containers[path] = struct{}{}
	}
}

func (t *tree) unindex(path string, n *node) {
	parent, name := splitPath(path)
	remove(t.children, parent, name)
	remove(t.ephemerals, n.stat.EphemeralOwner, path)
	delete(t.containers, path)
}

func insert[K comparable](index map[K]pathSet, key K, path string) {
	if index[key] == nil {
		index[key] = make(pathSet)
	}
	index[key][path] = struct{}{}
}

func remove[K comparable](index map[K]pathSet, key K, path string) {
	delete(index[key], path)
	if len(index[key]) == 0 {
		delete(index, key)
	}
}

func splitPath(path string) (parent, name string) {
	i := strings.LastIndexByte(path, '/')
	return path[:max(i, 1)], path[i+1:]
}

// validPath follows the server's PathUtils.validatePath, which looks at UTF-16: a character above U+FFFF is two surrogates.
func validPath(path string) bool {
	if path == "/" {
		return true
	}
	if !strings.HasPrefix(path, "/") || strings.HasSuffix(path, "/") {
		return false
	}
	for part := range strings.SplitSeq(path[1:], "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
	}
	return !strings.ContainsFunc(path, func(r rune) bool {
		return r <= 0x1f || r >= 0x7f && r <= 0x9f || r >= 0xd800 && r <= 0xf8ff || r >= 0xfff0
	})
}

func specialPath(path string) bool {
	switch path {
	case "/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config":
		return true
	}
	return false
}
