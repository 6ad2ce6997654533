package zktest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// A Direction is one of the two directions of a connection.
type Direction int

const (
	ToServer Direction = iota + 1
	ToClient
)

type mute struct {
	session int64
	dir     Direction
}

// A Session describes a live session.
type Session struct {
	ID         int64
	Timeout    time.Duration // as negotiated
	Member     string        // address of the member it is connected to; "" while disconnected
	Ephemerals []string      // paths of its nodes, sorted
}

// Sessions returns the live sessions in order of creation.
func (s *Server) Sessions() []Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Session
	for _, sess := range s.sessions {
		item := Session{ID: sess.id, Timeout: sess.timeout, Ephemerals: s.tree.ephemerals[sess.id].sorted()}
		if sess.conn != nil {
			item.Member = sess.conn.member.addr
		}
		list = append(list, item)
	}
	slices.SortFunc(list, func(a, b Session) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// Expire ends a session now, as if nothing had been heard of it for its timeout: its ephemeral nodes and its
// connection go, and its client will learn when it reconnects. It reports whether there was such a session.
func (s *Server) Expire(session int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	sess, ok := s.sessions[session]
	if ok {
		s.expireLocked(sess)
	}
	return ok
}

// Cut closes the connection of a session, which stays. It reports whether there was one.
func (s *Server) Cut(session int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	sess, ok := s.sessions[session]
	if !ok || sess.conn == nil {
		return false
	}
	sess.conn.cutLocked()
	return true
}

// CutAll closes every connection. The sessions stay.
func (s *Server) CutAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.cutLocked()
	}
}

// Mute holds up one direction of a session as a network partition does: until Unmute nothing gets through on its
// present connection and on those it tries to make. What still stands then gets what was sent.
func (s *Server) Mute(session int64, dir Direction) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if key := (mute{session, dir}); s.muted[key] == nil {
		s.muted[key] = make(chan struct{})
	}
}

// Unmute ends Mute.
func (s *Server) Unmute(session int64, dir Direction) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := mute{session, dir}
	if gate := s.muted[key]; gate != nil {
		close(gate)
		delete(s.muted, key)
	}
}

// Freeze stops all members as SIGSTOP would; see [Member.Freeze]. No session expires meanwhile.
func (s *Server) Freeze() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.frozen == nil {
		s.frozen = make(chan struct{})
	}
}

// Unfreeze continues a frozen server. Before it handles anything sent to it, it expires the sessions whose time has
// passed, which is what a real server may do.
func (s *Server) Unfreeze() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.frozen == nil {
		return
	}
	close(s.frozen)
	s.frozen = nil
	for _, id := range slices.Sorted(maps.Keys(s.sessions)) {
		if sess := s.sessions[id]; !time.Now().Before(sess.deadline) {
			s.expireLocked(sess)
		}
	}
}

// gateLocked is what holds up a direction of a connection, closed when it no longer does; nil if nothing does.
func (s *Server) gateLocked(c *conn, dir Direction) <-chan struct{} {
	switch {
	case s.frozen != nil:
		return s.frozen
	case c.member.frozen != nil:
		return c.member.frozen
	}
	return s.muted[mute{c.claim, dir}]
}

// SetSequence makes n the number of the next sequential node under parent. It panics if there is no such node or n
// is negative.
func (s *Server) SetSequence(parent string, n int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.tree.nodes[parent]
	if old == nil || n < 0 {
		panic(fmt.Sprintf("zktest: SetSequence(%q, %d): no such node, or a negative number", parent, n))
	}
	t := s.beginLocked()
	t.edit(parent, old).creates = n
	s.commitLocked(t)
}
