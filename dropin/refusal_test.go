package dropin_test

import (
	"errors"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/tierlock/tierlock/zktest"
)

// without is the ACL that forbids only that.
func without(perm int32) []zk.ACL { return zk.WorldACL(zk.PermAll &^ perm) }

// permit lets everybody do everything below the path.
func (s *scene) permit() {
	s.t.Helper()
	if _, err := s.other.SetACL(s.path, s.acl, -1); err != nil {
		s.t.Fatal(err)
	}
}

var refusalBehaviours = []behaviour{
	{
		name: "paths that ZooKeeper refuses",
		run: func(s *scene) {
			for _, path := range []string{"/", "relative", "/a/", "/a//b", "/a/./b", "/a/../b", "/a\x00b"} {
				s.path = path
				h := s.handle("", s.conn)
				h.lock()
				h.unlock()
			}
		},
		want: strings.TrimSuffix(strings.Repeat("Lock ErrInvalidPath, Unlock ErrNotLocked, ", 7), ", "),
	},
	{
		name: "paths that should not be locks", modelOnly: true,
		run: func(s *scene) {
			for _, path := range []string{"/zookeeper/locks", "/" + strings.Repeat("x", 2000)} {
				s.path = path
				h := s.handle("", s.conn)
				h.lock()
				h.unlock()
				s.left()
			}
		},
		want:    "Lock ok, Unlock ok, left 0, Lock ok, Unlock ok, left 0",
		ours:    "Lock ErrInvalidPath, Unlock ErrNotLocked, left 0, Lock ErrInvalidPath, Unlock ErrNotLocked, left 0",
		because: "Paths are checked",
	},
	{
		name: "no ACL",
		run: func(s *scene) {
			s.put(s.path, s.acl)
			s.acl = nil
			h := s.handle("", s.conn)
			h.lock()
			h.unlock()
			s.left()
		},
		want: "Lock ErrInvalidACL, Unlock ErrNotLocked, left 0",
	},
	{
		// The first create is answered late, so that both wait at once.
		name: "no ACL in another handle", modelOnly: true,
		run: func(s *scene) {
			s.put(s.path, s.acl)
			s.srv.Intercept(func(f *zktest.Frame) zktest.Action {
				if f.Dir == zktest.Reply && f.Op == "create" {
					return zktest.Delay(time.Second)
				}
				return zktest.Pass
			})
			good := s.handle("good", s.conn)
			s.acl = nil
			bad := s.handle("bad", s.conn)
			waits := []call{bad.beginLock(), good.beginLock()}
			waits[0].end()
			waits[1].end()
			good.unlock()
			s.left()
		},
		want: "bad Lock ErrInvalidACL, good Lock ok, good Unlock ok, left 0",
	},
	{
		name: "permission to create comes after a failed lock",
		run: func(s *scene) {
			s.put(s.path, without(zk.PermCreate))
			h := s.handle("", s.conn)
			h.lock()
			h.unlock()
			s.left()
			s.permit()
			h.lock()
			h.unlock()
			s.left()
		},
		want: "Lock ErrNoAuth, Unlock ErrNotLocked, left 0, Lock ok, Unlock ok, left 0",
	},
	{
		name: "no permission to list", modelOnly: true,
		run: func(s *scene) {
			s.put(s.path, without(zk.PermRead))
			h := s.handle("", s.conn)
			h.lock()
			h.unlock()
			s.left()
		},
		want:    "Lock ErrNoAuth, Unlock ErrNotLocked, left 1",
		ours:    "Lock ErrNoAuth, Unlock ErrNotLocked, left 0",
		because: "An error leaves no node behind",
	},
	{
		name: "permission to delete comes after a failed unlock",
		run: func(s *scene) {
			s.put(s.path, without(zk.PermDelete))
			h := s.handle("", s.conn)
			h.lock()
			h.unlock()
			h.unlock()
			s.note("nodes %d", len(s.children()))
			s.permit()
			h.unlock()
			h.lock()
			h.unlock()
			s.left()
		},
		want:    "Lock ok, Unlock ErrNoAuth, Unlock ErrNoAuth, nodes 1, Unlock ok, Lock ok, Unlock ok, left 0",
		ours:    "Lock ok, Unlock ErrNoAuth, Unlock ErrNotLocked, nodes 1, Unlock ErrNotLocked, Lock ok, Unlock ok, left 0",
		because: "Unlock always leaves the handle unlocked",
	},
	{
		name: "an ephemeral parent",
		run: func(s *scene) {
			s.path = "/compat-ephemeral"
			if _, err := s.other.Create(s.path, nil, zk.FlagEphemeral, s.acl); err != nil && !errors.Is(err, zk.ErrNodeExists) {
				s.t.Fatal(err)
			}
			h := s.handle("", s.conn)
			h.lock()
			h.unlock()
		},
		want: "Lock ErrNoChildrenForEphemerals, Unlock ErrNotLocked",
	},
}
