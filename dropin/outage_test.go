package dropin_test

import (
	"time"

	"github.com/tierlock/tierlock/zktest"
)

const outageReason = "Locking waits through lost connections and expired sessions"

var outageBehaviours = []behaviour{
	{
		name: "the connection is lost while waiting", modelOnly: true,
		run: func(s *scene) {
			h, old := s.handle("", s.conn), s.original("zk", s.other)
			old.lock()
			wait := h.beginLock()
			s.srv.Cut(s.conn.SessionID())
			<-time.After(sessionTimeout / 2) // virtual
			old.unlock()
			wait.end()
			h.unlock()
			s.left()
		},
		want: "zk Lock ok, zk Unlock ok, Lock ok, Unlock ok, left 0",
	},
	{
		name: "the answer to the list is lost", modelOnly: true,
		run: func(s *scene) {
			h, old := s.handle("", s.conn), s.original("zk", s.other)
			old.lock()
			s.cutAt("getChildren2")
			wait := h.beginLock()
			<-time.After(sessionTimeout) // virtual
			old.unlock()
			if wait.end() && len(s.children()) > 0 {
				h.again()
			}
		},
		want:    "zk Lock ok, zk Unlock ok, Lock ErrConnectionClosed, Unlock ErrNotLocked, Unlock ErrNotLocked, Lock waits, left 2",
		ours:    "zk Lock ok, zk Unlock ok, Lock ok, Unlock ok, Unlock ErrNotLocked, Lock ok, Unlock ok, left 0",
		because: outageReason,
	},
	{
		name: "no server when the lock is wanted", modelOnly: true,
		run: func(s *scene) {
			s.away()
			h := s.handle("", s.conn)
			wait := h.beginLock()
			<-time.After(sessionTimeout / 2) // virtual
			s.member().Accept()
			wait.end()
			h.again()
		},
		want:    "Lock ErrNoServer, Unlock ErrNotLocked, Unlock ErrNotLocked, Lock ok, Unlock ok, left 0",
		ours:    "Lock ok, Unlock ok, Unlock ErrNotLocked, Lock ok, Unlock ok, left 0",
		because: outageReason,
	},
	{
		name: "no server when the lock is not wanted any more", modelOnly: true,
		run: func(s *scene) {
			h := s.handle("", s.conn)
			h.lock()
			s.away()
			wait := h.begin("Unlock", h.zkLock.Unlock)
			<-time.After(sessionTimeout / 2) // virtual
			s.member().Accept()
			wait.end()
			h.again()
		},
		want:    "Lock ok, Unlock ErrNoServer, Unlock ok, Unlock ErrNotLocked, Lock ok, Unlock ok, left 0",
		ours:    "Lock ok, Unlock ErrNoServer, Unlock ErrNotLocked, Unlock ErrNotLocked, Lock ok, Unlock ok, left 0",
		because: "Unlock always leaves the handle unlocked",
	},
}

// away makes the server unreachable.
func (s *scene) away() {
	s.member().Refuse()
	s.srv.Cut(s.conn.SessionID())
	s.still()
}

func (s *scene) member() *zktest.Member { return s.srv.Member(modelAddr) }
