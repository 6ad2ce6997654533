package zklock

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// A session is one ZooKeeper session as this process knows it, with its lease: the time
// up to which the server cannot have given the session up. Everything that was learned
// under a session is bound to it by pointer, since ids may recur.
//
// The lease runs from the time since which the leader is known to have heard of the
// session, see [proof], for the negotiated timeout, less the margin. Nothing that was
// merely sent, pushed, or answered by a server on its own renews it.
type session struct {
	id     int64
	client *Client

	timeout atomic.Int64 // a time.Duration, the shortest that was negotiated for the session
	heard   atomic.Int64 // by the leader, on the client's clock; always if there is no lease

	mu       sync.Mutex         // guards the fields below; never held across a client call
	nodes    map[*Node]struct{} // nodes of ours in the queue
	held     int                // those of them that are held, and not lost to the lease
	over     error              // why the session has ended, nil before
	watchdog *time.Timer        // fires at the end of the lease while a node is held, nil before the first
}

const always = math.MaxInt64

// newSession returns a session whose lease is not known.
func newSession(c *Client, id int64, timeout time.Duration) *session {
	s := &session{id: id, client: c, nodes: make(map[*Node]struct{})}
	s.timeout.Store(int64(timeout))
	s.heard.Store(always)
	return s
}

func (s *session) String() string { return fmt.Sprintf("0x%x", uint64(s.id)) }

func (s *session) negotiated() time.Duration { return time.Duration(s.timeout.Load()) }

// validUntil returns the end of the lease on the client's clock.
func (s *session) validUntil() time.Duration {
	heard := s.heard.Load()
	if heard == always {
		return always
	}
	timeout := s.negotiated()
	return time.Duration(heard) + timeout - s.client.margin(timeout)
}

// valid reports whether the lease still runs. It reads the clock, so it is right at the
// first instruction of a process that was stopped.
func (s *session) valid() bool {
	return s.client.now() < s.validUntil() && s.client.link.vouches(s)
}

// renew counts that the leader has heard of the session at a time. Whoever held a lock
// when the lease ran out has lost it, even if the session turns out to be alive.
func (s *session) renew(heard time.Duration) {
	for {
		old := s.heard.Load()
		if int64(heard) <= old {
			return
		}
		if !s.valid() {
			s.lapse()
		}
		if s.heard.CompareAndSwap(old, int64(heard)) {
			return
		}
	}
}

// lapse ends every hold once the lease has run out.
func (s *session) lapse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.valid() {
		return
	}
	for n := range s.nodes {
		if n.held {
			n.held = false
			s.held--
			// Under the mutex: whoever calls lapse at the same time finds all lost.
			n.lose(fmt.Errorf("%w: the lease of session %v ran out", ErrLost, s))
		}
	}
}

// enrol adds a node to the queue side of the session, so that it learns of the
// session's end. It reports why not if that has come.
func (s *session) enrol(n *Node) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over != nil {
		return s.over
	}
	s.nodes[n] = struct{}{}
	return nil
}

// hold makes an enrolled node a held one, unless session, lease or node are gone.
func (s *session) hold(n *Node) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, enrolled := s.nodes[n]; !enrolled || s.over != nil || !s.valid() || n.life.Err() != nil {
		return false
	}
	n.held = true
	s.held++
	s.armLocked()
	return true
}

// armLocked sets the watchdog for the end of the lease, if there is one and anything to lose.
func (s *session) armLocked() {
	end := s.validUntil()
	if s.held == 0 || end == always {
		return
	}
	in := end - s.client.now()
	if s.watchdog == nil {
		s.watchdog = time.AfterFunc(in, s.watch)
		return
	}
	s.watchdog.Reset(in)
}

// watch runs when the lease was due to end, as known when the watchdog was armed.
func (s *session) watch() {
	s.lapse()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armLocked()
}

func (s *session) isOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over != nil
}

// leave takes a node out of the session's books.
func (s *session) leave(n *Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.nodes[n]; !ok {
		return
	}
	delete(s.nodes, n)
	if n.held {
		n.held = false
		s.held--
	}
}

// end marks the session as over: all its nodes are lost.
func (s *session) end(reason error) {
	s.mu.Lock()
	if s.over != nil {
		s.mu.Unlock()
		return
	}
	s.over = reason
	if s.watchdog != nil {
		s.watchdog.Stop()
	}
	s.mu.Unlock()
	for _, n := range s.enrolled() {
		n.lose(fmt.Errorf("%w: session %v: %w", ErrLost, s, reason))
	}
}

// ring makes every waiting node look again.
func (s *session) ring() {
	for _, n := range s.enrolled() {
		n.wake.Set()
	}
}

func (s *session) enrolled() []*Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	nodes := make([]*Node, 0, len(s.nodes))
	for n := range s.nodes {
		nodes = append(nodes, n)
	}
	return nodes
}

// anyNode returns one of the nodes that are queued or held, nil if there is none. One that
// is lost stays in the books until its owner gives it up, and may be gone.
func (s *session) anyNode() *Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := range s.nodes {
		if n.life.Err() == nil {
			return n
		}
	}
	return nil
}

// holders returns the held nodes.
func (s *session) holders() []*Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	nodes := make([]*Node, 0, s.held)
	for n := range s.nodes {
		if n.held {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// resume continues the session on a new connection. The server may have granted another
// timeout; which of its members go by which is not known, so the shortest counts.
func (s *session) resume(timeout time.Duration) {
	if timeout >= s.negotiated() {
		return
	}
	s.timeout.Store(int64(timeout))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armLocked()
}
