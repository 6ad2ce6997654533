package zktest

import (
	"crypto/rand"
	"crypto/subtle"
	"time"

	"github.com/tierlock/tierlock/internal/wire"
)

type session struct {
	id       int64
	password []byte
	timeout  time.Duration
	deadline time.Time   // the session expires at this time unless it is touched
	timer    *time.Timer // fires at deadline
	conn     *conn       // nil while disconnected
	member   *Member     // the member at which the session was last opened or resumed
}

// connectReply returns the answer to a handshake. If sess is nil, the answer says that the session has expired.
func connectReply(sess *session, readOnly bool) []byte {
	r := wire.ConnectReply{Password: make([]byte, wire.PasswordLen), ReadOnly: readOnly}
	if sess != nil {
		r.Timeout, r.Session, r.Password = sess.timeout, sess.id, sess.password
	}
	var e wire.Encoder
	e.ConnectReply(r)
	return wire.Frame(e)
}

// The method handshake handles a handshake. It reports whether requests may follow.
func (c *conn) handshake(body []byte) bool {
	d := &wire.Decoder{Rest: body}
	q := d.ConnectRequest()
	if d.Bad {
		return false
	}
	c.server.mu.Lock()
	c.claim = q.Session
	c.server.mu.Unlock()
	if !c.lockOpen(Request) {
		return false
	}
	f := c.server.frameLocked(c, Request, "connect", "")
	c.server.mu.Unlock()

	action := c.fate(&f)
	switch action {
	case Cut:
		return false
	case Drop:
		for ok := true; ok; { // the frames are lost until the client gives up
			_, ok = c.arrival(c.in)
		}
		return false
	}
	if !c.lockLed(q.Session) {
		return false
	}
	defer c.server.mu.Unlock()
	// A client must never see an older state than before. If the client has seen a later state than the member has, the server closes the
	// connection without an answer.
	if q.LastZxid > c.member.viewLocked().zxid {
		return false
	}
	var sess *session
	if action.verb != refused {
		sess = c.server.attachLocked(c, q)
	}
	f.Dir, f.Session = Reply, c.claim
	c.out.push(outgoing{f, connectReply(sess, q.ReadOnly)})
	if sess == nil {
		c.finishLocked()
	}
	return true
}

// attachLocked returns the session that a connection requests, or a new one. It returns nil if the requested session has expired.
func (s *Server) attachLocked(c *conn, q wire.ConnectRequest) *session {
	sess := s.sessions[q.Session]
	if c.member.link.deposed {
		c.session, c.claim = sess, q.Session
		return sess
	}
	if sess != nil && sess.conn != nil {
		sess.conn.cutLocked() // a real server does this even if the password is wrong
	}
	switch {
	case q.Session == 0:
		sess = s.newSessionLocked()
		s.commitLocked(s.beginLocked())
		c.member.drainLocked()
	case sess == nil || subtle.ConstantTimeCompare(sess.password, q.Password) == 0:
		return nil
	}
	sess.conn, sess.member = c, c.member
	sess.timeout = min(max(q.Timeout, s.cfg.MinSessionTimeout), s.cfg.MaxSessionTimeout)
	c.session, c.claim = sess, sess.id
	s.touchLocked(sess)
	return sess
}

func (s *Server) newSessionLocked() *session {
	s.lastSession++
	sess := &session{id: s.lastSession, password: make([]byte, wire.PasswordLen)}
	rand.Read(sess.password)
	s.sessions[sess.id] = sess
	return sess
}

// touchLocked restarts the timeout of a session.
func (s *Server) touchLocked(sess *session) {
	sess.deadline = time.Now().Add(sess.timeout)
	if sess.timer == nil {
		sess.timer = time.AfterFunc(sess.timeout, func() { s.expireIfDue(sess) })
		return
	}
	sess.timer.Reset(sess.timeout)
}

func (s *Server) expireIfDue(sess *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The session may have been touched while this goroutine waited for the mutex. A frozen server expires no session.
	if !s.closed && s.frozen == nil && !time.Now().Before(sess.deadline) {
		s.expireLocked(sess)
	}
}

// expireLocked ends a session and its connection.
func (s *Server) expireLocked(sess *session) {
	if s.sessions[sess.id] != sess {
		return
	}
	c := sess.conn
	s.endLocked(sess)
	if c != nil && c.member.link.down == nil { // a member without a leader does not know of the expiry, and keeps the connection
		c.cutLocked()
	}
}

// endLocked ends a session. One transaction deletes all its ephemeral nodes.
func (s *Server) endLocked(sess *session) *delta {
	sess.timer.Stop()
	delete(s.sessions, sess.id)
	t := s.beginLocked()
	t.session = sess.id
	for _, path := range s.tree.ephemerals[sess.id].sorted() {
		t.remove(path)
	}
	return s.commitLocked(t)
}
