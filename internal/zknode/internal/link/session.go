package link

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/tierlock/tierlock/internal/lease"
)

// A Session is one ZooKeeper session as this process knows it, with its lease. Until the lease ends, the server cannot have ended the
// session. Results of a session refer to it by pointer, because session ids may be used again.
//
// The lease counts from the sending of a request that has certainly reached the leader, see [proof]. The leader has heard of the session at
// that time or later. The lease lasts for the negotiated timeout minus the margin. The lease is not renewed when a request is only sent,
// when the server sends an event, or when a server answers without the leader.
type Session struct {
	*lease.Lease[Member]
	ID      int64
	timeout atomic.Int64 // the shortest time.Duration that was negotiated for the session
}

// newSession returns a session. Its lease begins at begun, a time on the client's clock. The session exists as long as vouches returns
// true.
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

// resume continues the session on a new connection. The server may have granted another timeout. It is unknown which server uses which
// timeout, so the shortest timeout counts.
func (s *Session) resume(timeout, term time.Duration) {
	s.timeout.Store(int64(min(timeout, s.Negotiated())))
	s.Shorten(term)
}

// A Member is a node that is queued or held under a session.
type Member interface {
	// Lose ends the hold of the member.
	Lose(reason error)
	// IsLost reports whether the member is lost.
	IsLost() bool
	// Prove sends a write that succeeds only while the node exists.
	Prove()
	// Check reads the node to find out whether it still exists.
	Check()
}

// Recheck returns the time after which to read again if no event has arrived, because watches can be lost. The time is random, so that many
// processes do not read at the same time.
func (s *Session) Recheck() time.Duration {
	timeout := s.Negotiated()
	return timeout/2 + rand.N(timeout)
}
