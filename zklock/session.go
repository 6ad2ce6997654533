package zklock

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tierlock/tierlock/internal/lease"
)

// A session is one ZooKeeper session as this process knows it, with its lease: the time
// up to which the server cannot have given the session up. Everything that was learned
// under a session is bound to it by pointer, since ids may recur.
//
// The lease runs from the time since which the leader is known to have heard of the
// session, see [proof], for the negotiated timeout, less the margin. Nothing that was
// merely sent, pushed, or answered by a server on its own renews it.
type session struct {
	*lease.Lease[*Node]
	id      int64
	client  *Client
	timeout atomic.Int64 // a time.Duration, the shortest that was negotiated for the session
}

// newSession returns a session that began with a write, which was sent at a time on the
// client's clock.
func newSession(c *Client, id int64, timeout, sent time.Duration) *session {
	s := &session{id: id, client: c}
	s.timeout.Store(int64(timeout))
	s.Lease = lease.New(s.lease(), sent, timeout-c.margin(timeout))
	return s
}

// newUnleased returns a session of which only the server knows how long it lasts.
func newUnleased(c *Client, id int64, timeout time.Duration) *session {
	s := &session{id: id, client: c}
	s.timeout.Store(int64(timeout))
	s.Lease = lease.Unlimited(s.lease())
	return s
}

func (s *session) lease() lease.Config[*Node] {
	return lease.Config[*Node]{
		Name:    fmt.Sprintf("session %v", s),
		Now:     s.client.now,
		Vouches: func() bool { return s.client.link.vouches(s) },
		Lose:    (*Node).lose,
		Lost:    func(n *Node) bool { return n.life.Err() != nil },
	}
}

func (s *session) String() string { return fmt.Sprintf("0x%x", uint64(s.id)) }

func (s *session) negotiated() time.Duration { return time.Duration(s.timeout.Load()) }

// resume continues the session on a new connection. The server may have granted another
// timeout; which of its members go by which is not known, so the shortest counts.
func (s *session) resume(timeout time.Duration) {
	if timeout < s.negotiated() {
		s.timeout.Store(int64(timeout))
		s.Shorten(timeout - s.client.margin(timeout))
	}
}

// ring makes every waiting node look again.
func (s *session) ring() {
	for _, n := range s.Contenders() {
		n.wake.Set()
	}
}

// anyNode returns one of the nodes that are queued or held, nil if there is none. One that
// is lost stays in the books until its owner gives it up, and may be gone.
func (s *session) anyNode() *Node {
	for _, n := range s.Contenders() {
		if n.life.Err() == nil {
			return n
		}
	}
	return nil
}
