package zktest

import "time"

// syncLimit is for how many ticks a member goes on serving without its leader.
const syncLimit = 5

// A link is a follower's connection to the leader: a stream in each direction, in order. While it stands, what is sent
// arrives at once. What is sent down while it does not is the member's backlog, and a ping.
type link struct {
	down    chan struct{} // closed when the link stands again; nil while it does
	deposed bool          // the member was the leader and takes itself for it
	up      []*upward     // sent to the leader and not arrived
	pinged  bool          // the leader has sent a ping that has not arrived
	noted   map[*session]struct{}
	limit   *time.Timer // when the member gives up; nil while the link stands
}

// An upward is something sent to the leader: a forwarded request, or a report of the sessions that were heard of.
type upward struct {
	arrive func()
	report bool
}

// Isolate cuts the member off from the leader, as a partition between servers does: its clients get answers to pings
// and reads, from a state that grows old; writes, syncs and handshakes wait. The leader hears no more of its clients'
// sessions. After five ticks, if [Config] has one, the member gives up: it drops its clients and refuses new ones.
func (m *Member) Isolate() { m.leave(false) }

// Depose makes the member a leader that has lost the others and does not know: like Isolate, but it also answers syncs,
// and lets clients resume their sessions. The others have a new leader at once, whose clocks of all sessions start now.
func (m *Member) Depose() { m.leave(true) }

func (m *Member) leave(deposed bool) {
	s := m.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.link.down != nil {
		return
	}
	m.link.down, m.link.deposed = make(chan struct{}), deposed
	m.standStillLocked()
	if s.cfg.Tick > 0 {
		m.link.limit = time.AfterFunc(syncLimit*s.cfg.Tick, m.giveUp)
	}
	if deposed {
		for _, sess := range s.sessions {
			s.touchLocked(sess)
		}
	}
}

// giveUp is what a member does that has not heard of its leader for too long.
func (m *Member) giveUp() {
	m.server.mu.Lock()
	defer m.server.mu.Unlock()
	if m.link.down == nil || m.server.closed {
		return
	}
	m.link.up = nil // the connection to the leader is closed
	m.link.limit = nil
	m.cutLocked()
}

// Glimpse lets the link to the leader stand for a moment: the first n requests that an isolated member has forwarded
// arrive, and their answers come back, behind the leader's pings. The member's answers to those do not arrive.
func (m *Member) Glimpse(n int) {
	m.server.mu.Lock()
	defer m.server.mu.Unlock()
	if m.link.down == nil || m.link.deposed {
		return
	}
	for ; n > 0 && len(m.link.up) > 0 && !m.link.up[0].report; n-- {
		m.arriveLocked()
		m.pingedLocked()
	}
}

// Rejoin ends Isolate and Depose. What waits arrives in order.
func (m *Member) Rejoin() {
	m.server.mu.Lock()
	defer m.server.mu.Unlock()
	l := &m.link
	if l.down == nil {
		return
	}
	if l.deposed { // what only it has proposed is lost
		l.up, l.deposed = nil, false
		m.cutLocked()
	}
	for len(l.up) > 0 {
		m.arriveLocked()
		m.pingedLocked()
	}
	if l.limit != nil {
		l.limit.Stop()
		l.limit = nil
	}
	close(l.down)
	l.down = nil
	m.moveOnLocked()
	for c := range m.server.conns {
		if c.member == m && c.session != nil && m.server.sessions[c.session.id] != c.session {
			c.cutLocked() // expired meanwhile
		}
	}
}

// arriveLocked takes the first thing off the stream to the leader.
func (m *Member) arriveLocked() {
	first := m.link.up[0]
	m.link.up = m.link.up[1:]
	first.arrive()
}

// sendUpLocked sends something to the leader.
func (m *Member) sendUpLocked(u *upward) {
	if m.link.down == nil {
		u.arrive()
		return
	}
	m.link.up = append(m.link.up, u)
}

// givenUpLocked reports whether the member has dropped its clients and waits for a leader.
func (m *Member) givenUpLocked() bool {
	return m.link.down != nil && m.server.cfg.Tick > 0 && m.link.limit == nil
}

// noteLocked is called for each request of a session.
func (m *Member) noteLocked(sess *session) {
	switch {
	case m.server.cfg.Tick == 0 && m.link.down == nil:
		m.server.touchLocked(sess)
	case !m.link.deposed:
		m.link.noted[sess] = struct{}{}
	}
}

// ping is what the leader does every half tick.
func (s *Server) ping() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.pinger.Reset(s.cfg.Tick / 2)
	if s.frozen != nil {
		return
	}
	for _, m := range s.members {
		if m.frozen == nil && !m.link.deposed {
			m.link.pinged = true
			if m.link.down == nil {
				m.pingedLocked()
			}
		}
	}
}

// pingedLocked has a member answer a ping with the sessions that it has heard of.
func (m *Member) pingedLocked() {
	if !m.link.pinged {
		return
	}
	m.link.pinged = false
	noted := m.link.noted
	m.link.noted = make(map[*session]struct{})
	m.sendUpLocked(&upward{report: true, arrive: func() {
		for sess := range noted {
			if m.server.sessions[sess.id] == sess {
				m.server.touchLocked(sess)
			}
		}
	}})
}

// forwarded reports whether a member has to ask the leader for the answer.
func (m *Member) forwarded(op Op) bool {
	switch op {
	case OpCreate, OpCreate2, OpCreateContainer, OpDelete, OpSetData, OpSetACL, OpMulti, OpClose:
		return true
	case OpSync:
		return !m.link.deposed
	}
	return false
}
