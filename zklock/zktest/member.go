package zktest

import (
	"time"

	"github.com/tierlock/tierlock/internal/wire"
)

// A Member is one server of the ensemble, identified by its address. All members serve the same tree.
type Member struct {
	server *Server
	addr   string

	// The following fields are guarded by server.mu.
	frozen  chan struct{} // closed by Unfreeze; nil while running
	refuses bool
	link    link
	lags    bool
	behind  *tree    // the state that a member serves while it lags or has no leader; otherwise nil
	backlog []*delta // the transactions that the tree behind does not have yet
	watches watches
}

// Member returns the member with the address addr. A member is created when its address is first used.
func (s *Server) Member(addr string) *Member {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.memberLocked(addr)
}

func (s *Server) memberLocked(addr string) *Member {
	m := s.members[addr]
	if m == nil {
		m = &Member{server: s, addr: addr, watches: newWatches(), link: link{noted: make(map[*session]struct{})}}
		s.members[addr] = m
	}
	return m
}

// Freeze stops the member as SIGSTOP would. A frozen member accepts connections and requests, but does not process or answer them. Other
// members continue, and expire sessions that send them no message.
func (m *Member) Freeze() {
	m.server.mu.Lock()
	defer m.server.mu.Unlock()
	if m.frozen == nil {
		m.frozen = make(chan struct{})
	}
}

// Unfreeze continues a frozen member. The member then processes the requests that it received on connections that are still open.
func (m *Member) Unfreeze() {
	m.server.mu.Lock()
	defer m.server.mu.Unlock()
	if m.frozen != nil {
		close(m.frozen)
		m.frozen = nil
	}
}

// Refuse makes the member refuse new connections. Existing connections stay open; see [Member.Cut].
func (m *Member) Refuse() { m.setRefuses(true) }

// Accept ends Refuse.
func (m *Member) Accept() { m.setRefuses(false) }

func (m *Member) setRefuses(refuses bool) {
	m.server.mu.Lock()
	defer m.server.mu.Unlock()
	m.refuses = refuses
}

// Cut closes every connection to this member. The sessions stay.
func (m *Member) Cut() {
	m.server.mu.Lock()
	defer m.server.mu.Unlock()
	m.cutLocked()
}

func (m *Member) cutLocked() {
	for c := range m.server.conns {
		if c.member == m {
			c.cutLocked()
		}
	}
}

// Lag makes the member a follower that falls behind. Until CatchUp, its clients read the state at the time of Lag, and get no events of
// later changes. As on a real follower, some requests update the member once: a sync, a write, and the start or the end of a session at
// this member.
func (m *Member) Lag() {
	m.server.mu.Lock()
	defer m.server.mu.Unlock()
	m.lags = true
	m.standStillLocked()
}

// CatchUp ends Lag, and sends the delayed watch events.
func (m *Member) CatchUp() {
	m.server.mu.Lock()
	defer m.server.mu.Unlock()
	m.lags = false
	m.moveOnLocked()
}

// standStillLocked makes the member keep serving its present state.
func (m *Member) standStillLocked() {
	if m.behind == nil {
		m.behind = m.server.tree.clone()
	}
}

// moveOnLocked makes the member serve the newest state again, unless there is another reason to serve an old one.
func (m *Member) moveOnLocked() {
	if !m.lags && m.link.down == nil && m.behind != nil {
		m.drainLocked()
		m.behind = nil
	}
}

func (m *Member) drainLocked() {
	backlog := m.backlog
	m.backlog = nil
	for _, d := range backlog {
		m.behind.apply(d)
		m.watches.fire(d)
	}
}

func (m *Member) commitLocked(d *delta) {
	if m.behind != nil {
		m.backlog = append(m.backlog, d)
		return
	}
	m.watches.fire(d)
}

// viewLocked returns the state that the member serves.
func (m *Member) viewLocked() *tree {
	if m.behind != nil {
		return m.behind
	}
	return m.server.tree
}

// syncLimit is the number of ticks for which a member continues to serve its clients without its leader.
const syncLimit = 5

// A link is a follower's connection to the leader. It has an ordered stream in each direction. While the link works, data arrives at once.
// While it does not work, the data that the follower has not received is the member's backlog and at most one ping.
type link struct {
	down    chan struct{} // closed when the link works again; nil while it works
	deposed bool          // the member was the leader, and still believes that it is
	up      []*upward     // messages that were sent to the leader, and have not arrived
	pinged  bool          // the leader has sent a ping, which has not arrived
	noted   map[*session]struct{}
	limit   *time.Timer // fires when the member gives up; nil while the link works
}

// An upward is a message to the leader: a forwarded request, or a report that lists the active sessions.
type upward struct {
	arrive func()
	report bool
}

// Isolate disconnects the member from the leader, like a partition between servers. The member still answers pings and reads of its
// clients, with increasingly old data. Writes, syncs and handshakes wait. The leader receives no more reports about the sessions of these
// clients. If [Config.Tick] is set, the member closes its connections after five ticks, and refuses new ones.
func (m *Member) Isolate() { m.leave(false) }

// Depose makes the member a former leader that has lost the other members and has not noticed it. Depose is like Isolate, but the member
// also answers syncs, and lets clients resume their sessions. The other members have a new leader at once. The new leader starts the
// timeouts of all sessions again.
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

// giveUp is called when a member has received nothing from its leader for syncLimit ticks.
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

// Glimpse connects an isolated member with the leader for a moment. The first n requests that the member has forwarded reach the leader.
// The leader's pings reach the member, followed by the answers to these n requests. The member's answers to the pings do not reach the
// leader.
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

// Rejoin ends Isolate and Depose. Waiting messages arrive in order.
func (m *Member) Rejoin() {
	m.server.mu.Lock()
	defer m.server.mu.Unlock()
	l := &m.link
	if l.down == nil {
		return
	}
	if l.deposed { // a deposed leader loses the changes that only it has proposed
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
			c.cutLocked() // the session has expired in the meantime
		}
	}
}

// arriveLocked makes the first message in the stream arrive at the leader.
func (m *Member) arriveLocked() {
	first := m.link.up[0]
	m.link.up = m.link.up[1:]
	first.arrive()
}

// sendUpLocked sends a message to the leader.
func (m *Member) sendUpLocked(u *upward) {
	if m.link.down == nil {
		u.arrive()
		return
	}
	m.link.up = append(m.link.up, u)
}

// givenUpLocked reports whether the member has disconnected its clients and waits for a leader.
func (m *Member) givenUpLocked() bool {
	return m.link.down != nil && m.server.cfg.Tick > 0 && m.link.limit == nil
}

// noteLocked is called for each request of a session. It records that the session is active.
func (m *Member) noteLocked(sess *session) {
	switch {
	case m.server.cfg.Tick == 0 && m.link.down == nil:
		m.server.touchLocked(sess)
	case !m.link.deposed:
		m.link.noted[sess] = struct{}{}
	}
}

// ping is called every half tick, on behalf of the leader.
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

// pingedLocked makes a member answer a ping. The answer lists the sessions that were active.
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

// The method forwarded reports whether a member needs the leader to answer the request.
func (m *Member) forwarded(op int32) bool {
	switch op {
	case wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer, wire.OpDelete, wire.OpSetData, wire.OpSetACL, wire.OpMulti, wire.OpClose:
		return true
	case wire.OpSync:
		return !m.link.deposed
	}
	return false
}
