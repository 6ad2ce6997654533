package dropin_test

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
)

var callBehaviours = []behaviour{
	{
		name: "lock and unlock, twice, and once more than it is locked",
		run: func(s *scene, h handle) {
			h.unlock()
			for range 2 {
				h.lock()
				s.note("nodes %d", len(s.children()))
				h.unlock()
			}
			h.unlock()
		},
		want: "Unlock ErrNotLocked, Lock ok, nodes 1, Unlock ok, Lock ok, nodes 1, Unlock ok, Unlock ErrNotLocked, left 0",
	},
	{
		name: "a handle locked twice",
		run: func(s *scene, h handle) {
			h.lock()
			h.lock()
			h.lockWith("data")
			h.unlock()
		},
		want: "Lock ok, Lock ErrDeadlock, Lock ErrDeadlock, Unlock ok, left 0",
	},
}

var nodeBehaviours = []behaviour{
	{
		name: "what the node is",
		run: func(s *scene, h handle) {
			h.lock()
			name := s.children()[0]
			form := regexp.MustCompile(`^_c_[0-9a-f-]{32,36}-lock-\d{10}$`)
			s.note("named as by the library: %t", form.MatchString(name))
			_, stat, err := s.other.Get(s.path + "/" + name)
			s.note("of the connection's session: %t", err == nil && stat.EphemeralOwner == s.conn.SessionID())
			h.unlock()
		},
		want: "Lock ok, named as by the library: true, of the connection's session: true, Unlock ok, left 0",
	},
	{
		name: "data of the node",
		run: func(s *scene, h handle) {
			for _, lock := range []func() bool{h.lock, func() bool { return h.lockWith("hello") }, func() bool { return h.lockWith("") }} {
				lock()
				s.note("data %q", s.data())
				h.unlock()
			}
		},
		want: `Lock ok, data "", Unlock ok, Lock ok, data "hello", Unlock ok, Lock ok, data "", Unlock ok, left 0`,
	},
	{
		name: "more data than is reasonable",
		run: func(s *scene, h handle) {
			h.lockWith(strings.Repeat("x", 600<<10))
			h.unlock()
		},
		want:    "Lock ok, Unlock ok, left 0",
		ours:    "Lock some error, Unlock ErrNotLocked, left 0",
		because: "Data of more than 512 KiB",
	},
	{
		name: "ACL of node and parents",
		run: func(s *scene, _ handle) {
			s.acl = zk.WorldACL(zk.PermRead | zk.PermCreate | zk.PermDelete)
			h := s.handle("", s.conn)
			h.lock()
			for _, path := range []string{s.path + "/" + s.children()[0], s.path} {
				acl, _, err := s.other.GetACL(path)
				s.note("as given: %t", err == nil && fmt.Sprint(acl) == fmt.Sprint(s.acl))
			}
			h.unlock()
		},
		want: "Lock ok, as given: true, as given: true, Unlock ok, left 0",
	},
	{
		name: "data and ACL of a node that is handed on", modelOnly: true,
		run: func(s *scene, _ handle) {
			first := s.handle("first", s.conn)
			first.lockWith("1")
			s.acl = zk.WorldACL(zk.PermRead | zk.PermDelete)
			second := s.handle("second", s.conn)
			wait := second.begin("Lock", func() error { return second.LockWithData([]byte("2")) })
			first.unlock()
			wait.end()
			acl, _, err := s.other.GetACL(s.path + "/" + s.children()[0])
			s.note("data %q, ACL as given: %t", s.data(), err == nil && fmt.Sprint(acl) == fmt.Sprint(s.acl))
			second.unlock()
		},
		want:    `first Lock ok, first Unlock ok, second Lock ok, data "2", ACL as given: true, second Unlock ok, left 0`,
		ours:    `first Lock ok, first Unlock ok, second Lock ok, data "1", ACL as given: false, second Unlock ok, left 0`,
		because: "A node has the data and the ACL",
	},
	{
		name: "missing parents", modelOnly: true,
		run: func(s *scene, h handle) {
			h.lock()
			s.note("created %t", s.srv.Exists(s.path))
			h.unlock()
			s.left()
			<-time.After(5 * time.Second) // virtual; the server has looked for empty containers
			s.note("stay %t", s.srv.Exists(s.path))
			h.lock()
			h.unlock()
		},
		want:    "Lock ok, created true, Unlock ok, left 0, stay true, Lock ok, Unlock ok, left 0",
		ours:    "Lock ok, created true, Unlock ok, left 0, stay false, Lock ok, Unlock ok, left 0",
		because: "Missing parents are created as container nodes",
	},
}
