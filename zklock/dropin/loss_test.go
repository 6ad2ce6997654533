package dropin_test

import "github.com/tierlock/tierlock/internal/test/waittest"

// again records whether a handle can still be used.
func (h handle) again() {
	h.unlock()
	h.unlock()
	if h.lock() {
		h.unlock()
	}
}

var lossBehaviours = []behaviour{
	{
		name: "the node is deleted while it is held",
		run: func(s *scene, h handle) {
			h.lock()
			s.removed(s.children()[0])
			h.again()
		},
		want:    "Lock ok, Unlock ErrNoNode, Unlock ErrNoNode, Lock ErrDeadlock, Unlock ErrNoNode, left 0",
		ours:    "Lock ok, Unlock lost+ErrNoNode, Unlock ErrNotLocked, Lock ok, Unlock ok, left 0",
		because: "Unlock always leaves the handle unlocked",
	},
	{
		name: "the session expires while waiting", modelOnly: true,
		run: func(s *scene, h handle) {
			old := s.original("zk", s.other)
			old.lock()
			wait := h.beginLock()
			s.expire()
			old.unlock()
			wait.end()
			h.unlock()
		},
		want:    "zk Lock ok, zk Unlock ok, Lock ErrSessionExpired, Unlock ErrNotLocked, left 0",
		ours:    "zk Lock ok, zk Unlock ok, Lock ok, Unlock ok, left 0",
		because: outageReason,
	},
	{
		name: "the connection was closed before", modelOnly: true,
		run: func(s *scene, h handle) {
			s.close()
			h.lock()
			h.lock()
			h.unlock()
		},
		want:    "Lock ErrConnectionClosed, Lock ErrConnectionClosed, Unlock ErrNotLocked, left 0",
		ours:    "Lock closed+ErrClosing, Lock closed+ErrClosing, Unlock ErrNotLocked, left 0",
		because: outageReason,
	},
	{
		name: "the connection is closed out of reach of the server while the lock is held", modelOnly: true,
		run: func(s *scene, h handle) {
			h.lock()
			s.away()
			s.close()
			s.left() // its session has ended
			h.unlock()
			h.unlock()
		},
		want:    "Lock ok, left 0, Unlock ErrConnectionClosed, Unlock ErrConnectionClosed, left 0",
		ours:    "Lock ok, left 0, Unlock closed+lost+ErrConnectionClosed, Unlock ErrNotLocked, left 0",
		because: "Unlock always leaves the handle unlocked",
	},
}

// expire ends the session of the connection and waits for the next one.
func (s *scene) expire() {
	s.t.Helper()
	old := s.conn.SessionID()
	s.srv.Expire(old)
	waittest.Eventually(s.t, "a new session", func() bool { id := s.conn.SessionID(); return id != 0 && id != old })
	s.still()
}
