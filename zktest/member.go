package zktest

// A Member is one server of the ensemble, known by its address. All members serve the same tree.
type Member struct {
	server *Server
	addr   string

	// Guarded by server.mu.
	frozen  chan struct{} // closed by Unfreeze; nil while running
	refuses bool
	link    link
	lags    bool
	behind  *tree    // what a member serves that lags or has lost the leader; else nil
	backlog []*delta // what behind lacks
	watches watches
}

// Member returns the member that serves addr; it exists from its first mention.
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

// Freeze stops the member as SIGSTOP would: it accepts connections and requests, and neither handles nor answers
// anything. Other members go on, and expire the sessions they hear nothing of.
func (m *Member) Freeze() {
	m.server.mu.Lock()
	defer m.server.mu.Unlock()
	if m.frozen == nil {
		m.frozen = make(chan struct{})
	}
}

// Unfreeze continues a frozen member; it then handles what has been sent to it on connections that still stand.
func (m *Member) Unfreeze() {
	m.server.mu.Lock()
	defer m.server.mu.Unlock()
	if m.frozen != nil {
		close(m.frozen)
		m.frozen = nil
	}
}

// Refuse makes the member refuse new connections. Those it has stay; see [Member.Cut].
func (m *Member) Refuse() { m.setRefuses(true) }

// Accept ends Refuse.
func (m *Member) Accept() { m.setRefuses(false) }

func (m *Member) setRefuses(refuses bool) {
	m.server.mu.Lock()
	defer m.server.mu.Unlock()
	m.refuses = refuses
}

// Cut closes every connection through this member. The sessions stay.
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

// Lag makes the member a follower that falls behind: from now on its clients read the present state and hear of no
// later change, until CatchUp. As on a real follower, a sync, a write, or a session that starts or is closed through the
// member brings it up to date for once.
func (m *Member) Lag() {
	m.server.mu.Lock()
	defer m.server.mu.Unlock()
	m.lags = true
	m.standStillLocked()
}

// CatchUp ends Lag; watch events held up are sent.
func (m *Member) CatchUp() {
	m.server.mu.Lock()
	defer m.server.mu.Unlock()
	m.lags = false
	m.moveOnLocked()
}

// standStillLocked has the member serve the present state from now on.
func (m *Member) standStillLocked() {
	if m.behind == nil {
		m.behind = m.server.tree.clone()
	}
}

// moveOnLocked ends standing still, if nothing else is a reason for it.
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

// viewLocked is the state the member serves.
func (m *Member) viewLocked() *tree {
	if m.behind != nil {
		return m.behind
	}
	return m.server.tree
}
