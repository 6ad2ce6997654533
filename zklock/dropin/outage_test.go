package dropin_test

import (
	"time"

	"github.com/tierlock/tierlock/zklock/zktest"
)

const outageReason = "Lock keeps waiting when a connection is lost or a session expires"

var outageBehaviours = []behaviour{
	{
		name: "no server when the lock is wanted", modelOnly: true,
		run: func(s *scene, _ handle) {
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
		run: func(s *scene, h handle) {
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
