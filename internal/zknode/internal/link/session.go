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

// newSession returns a session whose lease begins at a time on the client's clock, and which stands as long as vouches reports so.
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

// resume continues the session on a new connection. The server may have granted another
// timeout; which of its members go by which is not known, so the shortest counts.
func (s *Session) resume(timeout, term time.Duration) {
	s.timeout.Store(int64(min(timeout, s.Negotiated())))
	s.Shorten(term)
}

// A Member is a node that is queued or held under a session.
type Member interface {
	// Lose ends the hold.
	Lose(reason error)
	// IsLost reports whether it has ended.
	IsLost() bool
	// Prove has the server agree, by a write, that the node is there.
	Prove()
	// Check looks whether the node is still there.
	Check()
}

// Recheck is after what time to look again although no event came: watches can be lost. It spreads the looks of many processes over time.
func (s *Session) Recheck() time.Duration {
	timeout := s.Negotiated()
	return timeout/2 + rand.N(timeout)
}
