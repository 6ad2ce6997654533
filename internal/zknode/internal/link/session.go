package link

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/tierlock/tierlock/internal/lease"
)

// A Session is one ZooKeeper session as this process knows it, with its lease: the time up to which the server cannot have given the
// session up. Everything that was learned under a session is bound to it by pointer, since ids may recur.
//
// The lease runs from the time since which the leader is known to have heard of the session, see [proof], for the negotiated timeout, less
// the margin. Nothing that was merely sent, pushed, or answered by a server on its own renews it.
type Session struct {
	*lease.Lease[Member]
	ID      int64
	timeout atomic.Int64 // a time.Duration, the shortest that was negotiated for the session
}

// newSession returns a session whose lease begins at a time on the client's clock, and which exists as long as vouches returns true.
func newSession(l *Link, id int64, timeout, begun, term time.Duration, vouches func() bool) *Session {
	s := &Session{ID: id}
	s.Lease = lease.New[Member](lease.Config{
		Name:    fmt.Sprintf("session %v", s),
		Clock:   l.clock,
		Vouches: vouches,
	}, begun, term)
	s.timeout.Store(int64(timeout))
	return s
}

func (s *Session) String() string { return fmt.Sprintf("0x%x", uint64(s.ID)) }

func (s *Session) Negotiated() time.Duration { return time.Duration(s.timeout.Load()) }

// resume continues the session on a new connection. The server may have granted another timeout. It is unknown which servers use which
// timeout, so the shortest counts.
func (s *Session) resume(timeout, term time.Duration) {
	s.timeout.Store(int64(min(timeout, s.Negotiated())))
	s.Shorten(term)
}

// A Member is a node that is queued or held under a session.
type Member interface {
	// Lose ends the hold.
	Lose(reason error)
	// IsLost reports whether the member has ended.
	IsLost() bool
	// Prove makes a write that succeeds only while the node exists.
	Prove()
	// Check reads whether the node still exists.
	Check()
}

// Recheck is after how long to read again if no event came, since watches can be lost. It is random, to spread the reads of many
// processes over time.
func (s *Session) Recheck() time.Duration {
	timeout := s.Negotiated()
	return timeout/2 + rand.N(timeout)
}
