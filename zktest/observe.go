package zktest

import (
	"fmt"
	"slices"
)

// A ChangeKind is what happened to a node.
type ChangeKind int

const (
	Created ChangeKind = iota + 1
	Deleted
	DataChanged
	ACLChanged
)

func (k ChangeKind) String() string {
	switch k {
	case Created:
		return "created"
	case Deleted:
		return "deleted"
	case DataChanged:
		return "data changed"
	case ACLChanged:
		return "ACL changed"
	}
	return fmt.Sprintf("change %d", int(k))
}

// A Change is one effect of a transaction.
type Change struct {
	Zxid    int64
	Kind    ChangeKind
	Path    string
	Session int64 // session that asked for it or ended; zero if the server did it of itself
}

// OnChange calls f after each transaction that changes a node, with the new state and all the transaction's changes in
// order; nil ends it. Calls come one at a time, before the next transaction and before any client can know of this
// one. The view is valid during the call. The server is locked: f must not call its methods, and as it
// may run on a goroutine of the server, not t.Fatal either.
func (s *Server) OnChange(f func(View, []Change)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onChange = f
}

// A View reads the tree at one moment, past all access control.
type View struct{ tree *tree }

// Zxid is the last transaction applied.
func (v View) Zxid() int64 { return v.tree.zxid }

// Exists reports whether there is a node at path.
func (v View) Exists(path string) bool { return v.tree.nodes[path] != nil }

// Children returns the names of the children of path, sorted; nil if there are none or no node.
func (v View) Children(path string) []string { return v.tree.children[path].sorted() }

// Get returns the data and Stat of the node at path; ok is false if there is none.
func (v View) Get(path string) (data []byte, stat Stat, ok bool) {
	n := v.tree.nodes[path]
	if n == nil {
		return nil, Stat{}, false
	}
	return slices.Clone(n.data), n.Stat(), true
}

// Zxid is the last transaction applied.
func (s *Server) Zxid() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return View{s.tree}.Zxid()
}

// Exists reports whether there is a node at path.
func (s *Server) Exists(path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return View{s.tree}.Exists(path)
}

// Children returns the names of the children of path, sorted; nil if there are none or no node.
func (s *Server) Children(path string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return View{s.tree}.Children(path)
}

// Get returns the data and Stat of the node at path; ok is false if there is none.
func (s *Server) Get(path string) (data []byte, stat Stat, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return View{s.tree}.Get(path)
}

// Watches is the number of watches set on all members: one for each connection, path and kind (data or children).
func (s *Server) Watches() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, m := range s.members {
		n += m.watches.data.count() + m.watches.child.count()
	}
	return n
}
