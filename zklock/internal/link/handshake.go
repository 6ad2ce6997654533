package link

import (
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/wire"
)

// handshakeTimeout bounds the wait for a server that accepts and then says nothing. It
// leaves time to try several servers within one session timeout.
func (l *dialed) handshakeTimeout() time.Duration {
	timeout := l.link.config.SessionTimeout
	if s := l.Session(); s != nil {
		timeout = s.Negotiated()
	}
	return min(max(timeout/6, 100*time.Millisecond), 2*time.Second)
}

// established is called by the socket at the end of a handshake that was sent at
// sentAt, before the library knows.
func (l *dialed) established(id int64, timeout, sentAt time.Duration) (*Session, error) {
	c := l.link
	if timeout <= 0 { // nor has a session any time left that was to be resumed
		l.expired()
		return nil, fmt.Errorf("the server granted a session timeout of %v", timeout)
	}
	var refusal error
	if margin := c.Margin(timeout); margin > timeout/2 {
		refusal = fmt.Errorf("the server granted a session timeout of %v; the lease margin of %v is more than half of it",
			timeout, margin)
	}
	l.mu.Lock()
	old := l.current
	if old != nil && old.ID == id {
		l.mu.Unlock()
		old.resume(timeout) // refused or not: the server has set its clock to it
		return old, refusal
	}
	if refusal != nil {
		l.mu.Unlock()
		return nil, refusal
	}
	s := newSession(c, id, timeout, sentAt)
	l.current = s
	l.mu.Unlock()
	if old != nil {
		old.End(zk.ErrSessionExpired)
	}
	c.Notice.Begin(s.String())
	l.warnOfTick(s)
	if c.ctx.Err() != nil { // closed: Close may have looked for a session before
		s.End(second.ErrClosed)
	}
	return s, nil
}

// introduce is the handshake for one of the library's, of a client that has seen all up
// to zxid. When the connection has been away for the session timeout, all holds are lost,
// and if only the answers get lost, each attempt to resume the session would keep its
// nodes in the queue: a new one is asked for. And a server whose data were lost or
// restored turns away, every time, a client that has seen a later transaction: in the
// end it is told that none has been seen, and says that the session has expired.
func (l *dialed) introduce(handshake []byte, zxid int64, now time.Duration) []byte {
	d := wire.Decoder{Rest: wire.Body(handshake)}
	q := d.ConnectRequest()
	q.LastZxid = zxid
	switch away, timeout := l.away(now); {
	case away > 4*timeout:
		q.LastZxid = 0
	case away > timeout:
		q.Session, q.Password = 0, make([]byte, wire.PasswordLen)
	}
	var e wire.Encoder
	e.ConnectRequest(q)
	return wire.Frame(e)
}

// away returns for how long the session has had no connection, and its timeout.
func (l *dialed) away(now time.Duration) (away, timeout time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current == nil || l.left == 0 {
		return 0, 0
	}
	return now - l.left, l.current.Negotiated()
}

// expired is called when a server says so in a handshake.
func (l *dialed) expired() {
	l.mu.Lock()
	old := l.current
	l.current = nil
	l.mu.Unlock()
	if old != nil {
		l.link.Notice.End(old.String())
		old.End(zk.ErrSessionExpired)
	}
	l.link.Events.lapse() // the library knows of its own watches only
}

// warnOfTick says when the session timeout may be too short for the lease, which takes
// the servers' tick for a quarter of it at most. Servers do not tell their tick: nearly
// all run with 2 s, and none grants less than two by default.
func (l *dialed) warnOfTick(s *Session) {
	const usualTick = 2 * time.Second
	timeout := s.Negotiated()
	if raised := timeout > l.link.config.SessionTimeout; raised || timeout < 4*usualTick {
		l.link.config.Logger.Warn("zklock: the session timeout may be too short for a lease that holds in a partition between servers;"+
			" it should be four of their ticks",
			"granted", timeout, "asked for", l.link.config.SessionTimeout, "safe with tickTime up to", timeout/4)
	}
}
