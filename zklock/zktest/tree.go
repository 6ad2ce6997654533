package zktest

import (
	"crypto/sha1"
	"encoding/base64"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/wire"
)

// containerOwner is the EphemeralOwner with which a server marks a container. Clients see zero instead.
const containerOwner = math.MinInt64

// A node does not change after it was put into a tree. A transaction replaces it by another node.
type node struct {
	data    []byte
	acl     []aclEntry
	stat    zk.Stat // Cversion, DataLength and NumChildren are not used; see Stat
	creates int32   // the number of children that were ever created; also the next sequence number
	kids    int32
}

// Stat returns the node's zk.Stat as clients see it. A node stores the number of children that were ever created. Stat computes Cversion,
// which also counts deletions, from this number.
func (n *node) Stat() zk.Stat {
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

// A tree is the state that a server has.
type tree struct {
	zxid       int64 // the id of the last applied transaction
	nodes      map[string]*node
	children   map[string]pathSet // the key is the path of the parent; the set has the names of the children
	ephemerals map[int64]pathSet  // the key is the session; the set has the paths of its ephemeral nodes
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

// clone returns a copy of the tree. Later transactions do not change the copy.
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

// apply puts the writes of a committed transaction into the tree.
func (t *tree) apply(d *delta) {
	t.zxid = d.zxid
	for path, n := range d.writes {
		t.set(path, n)
	}
}

// set puts n at path and updates the indexes. If n is nil, it deletes the node at path.
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

// validPath follows the server's PathUtils.validatePath. That function checks UTF-16, in which a character above U+FFFF is two surrogates.
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

const (
	permRead   int32 = 1 << 0
	permWrite  int32 = 1 << 1
	permCreate int32 = 1 << 2
	permDelete int32 = 1 << 3
	permAdmin  int32 = 1 << 4
	permAll    int32 = 1<<5 - 1
)

// An identity is an id that a client has proved under a scheme.
type identity struct{ scheme, id string }

type aclEntry struct {
	perms int32
	id    identity
}

var (
	anyone   = identity{"world", "anyone"}
	worldAll = []aclEntry{{perms: permAll, id: anyone}}
)

// digest returns the identity that a client proves with the credentials "user:password".
func digest(auth []byte) identity {
	user, _, _ := strings.Cut(string(auth), ":")
	sum := sha1.Sum(auth)
	return identity{"digest", user + ":" + base64.StdEncoding.EncodeToString(sum[:])}
}

// The function permitted reports whether an ACL grants one of perms to a client with the identities auth.
func permitted(acl []aclEntry, perms int32, auth []identity) bool {
	return slices.ContainsFunc(acl, func(a aclEntry) bool {
		return a.perms&perms != 0 && (a.id == anyone || slices.Contains(auth, a.id))
	})
}

// fixACL returns the ACL that a node gets when a client asks for acl. In acl, "auth" stands for all identities of the client.
func fixACL(acl []aclEntry, auth []identity) (fixed []aclEntry, code int32) {
	for _, a := range acl {
		switch {
		case a.id == anyone:
			fixed = appendNew(fixed, a)
		case a.id.scheme == "auth":
			if len(auth) == 0 {
				return nil, wire.CodeInvalidACL
			}
			for _, id := range auth {
				fixed = appendNew(fixed, aclEntry{perms: a.perms, id: id})
			}
		case a.id.scheme == "digest" && strings.Count(a.id.id, ":") == 1:
			fixed = appendNew(fixed, a)
		default:
			return nil, wire.CodeInvalidACL
		}
	}
	if len(fixed) == 0 {
		return nil, wire.CodeInvalidACL
	}
	return fixed, wire.CodeOK
}

func appendNew(list []aclEntry, a aclEntry) []aclEntry {
	if slices.Contains(list, a) {
		return list
	}
	return append(list, a)
}

// The function masked returns an ACL without password hashes, for clients that may read the ACL but not change it.
func masked(acl []aclEntry) []aclEntry {
	list := slices.Clone(acl)
	for i, a := range list {
		if a.id.scheme == "digest" {
			user, _, _ := strings.Cut(a.id.id, ":")
			list[i].id.id = user + ":x"
		}
	}
	return list
}
