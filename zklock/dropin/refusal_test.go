package dropin_test

import (
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/test/need"
)

// without returns an ACL that lacks only the given permission.
func without(perm int32) []zk.ACL { return zk.WorldACL(zk.PermAll &^ perm) }

// permit gives all clients all permissions below the path.
func (s *scene) permit() {
	s.t.Helper()
	need.Get(s.other.SetACL(s.path, s.acl, -1))(s.t)
}

var refusalBehaviours = []behaviour{
	{
		name: "paths that ZooKeeper refuses",
		run: func(s *scene, _ handle) {
			for _, path := range []string{"/", "relative", "/a/", "/a//b", "/a/./b", "/a/../b", "/a\x00b"} {
				s.path = path
				h := s.handle("", s.conn)
				h.lock()
				h.unlock()
			}
			s.path = "/a"
		},
		want: strings.Repeat("Lock ErrInvalidPath, Unlock ErrNotLocked, ", 7) + "left 0",
	},
	{
		name: "paths that should not be locks", modelOnly: true,
		run: func(s *scene, _ handle) {
			for _, path := range []string{"/zookeeper/locks", "/" + strings.Repeat("x", 2000)} {
				s.path = path
				h := s.handle("", s.conn)
				h.lock()
				h.unlock()
			}
		},
		want:    "Lock ok, Unlock ok, Lock ok, Unlock ok, left 0",
		ours:    "Lock ErrInvalidPath, Unlock ErrNotLocked, Lock ErrInvalidPath, Unlock ErrNotLocked, left 0",
		because: "Paths are checked",
	},
	{
		name: "no ACL",
		run: func(s *scene, _ handle) {
			s.put(s.path, s.acl)
			s.acl = nil
			h := s.handle("", s.conn)
			h.lock()
			h.unlock()
		},
		want: "Lock ErrInvalidACL, Unlock ErrNotLocked, left 0",
	},
	{
		name: "no permission to list", modelOnly: true,
		run: func(s *scene, h handle) {
			s.put(s.path, without(zk.PermRead))
			h.lock()
			h.unlock()
		},
		want:    "Lock ErrNoAuth, Unlock ErrNotLocked, left 1",
		ours:    "Lock ErrNoAuth, Unlock ErrNotLocked, left 0",
		because: "After an error no node is left",
	},
	{
		name: "permission to delete comes after a failed unlock",
		run: func(s *scene, h handle) {
			s.put(s.path, without(zk.PermDelete))
			h.lock()
			h.unlock()
			h.unlock()
			s.note("nodes %d", len(s.children()))
			s.permit()
			h.unlock()
			h.lock()
			h.unlock()
		},
		want:    "Lock ok, Unlock ErrNoAuth, Unlock ErrNoAuth, nodes 1, Unlock ok, Lock ok, Unlock ok, left 0",
		ours:    "Lock ok, Unlock ErrNoAuth, Unlock ErrNotLocked, nodes 1, Unlock ErrNotLocked, Lock ok, Unlock ok, left 0",
		because: "Unlock always leaves the handle unlocked",
	},
}
