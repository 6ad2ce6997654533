package zklock

import (
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"
)

// handshakeTimeout bounds the wait for a server that accepts and then says nothing. It
// leaves time to try several servers within one session timeout.
func (l *dialed) handshakeTimeout() time.Duration {
	timeout := l.client.options.sessionTimeout
	if s := l.session(); s != nil {
		timeout = s.negotiated()
	}
	return min(max(timeout/6, 100*time.Millisecond), 2*time.Second)
}

func (l *dialed) session() *session {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.current
}

// established is called by the socket at the end of a handshake that was sent at
// sentAt, before the library knows.
func (l *dialed) established(id int64, timeout, sentAt time.Duration) (*session, error) {
	c := l.client
	var refusal error
	if margin := c.margin(timeout); timeout <= margin {
		refusal = fmt.Errorf("the server granted a session timeout of %v, not above the lease margin of %v",
			timeout, margin)
	}
	l.mu.Lock()
	old := l.current
	if old != nil && old.id == id {
		l.mu.Unlock()
		old.resume(timeout, sentAt) // refused or not: the server has set its clock to it
		return old, refusal
	}
	if refusal != nil {
		l.mu.Unlock()
		return nil, refusal
	}
	s := newSession(c, id, timeout)
	s.validUntil.Store(int64(s.leaseFrom(sentAt)))
	l.current = s
	l.mu.Unlock()
	if old != nil {
		old.end(zk.ErrSessionExpired)
	}
	if c.ctx.Err() != nil { // closed: Close may have looked for a session before
		s.end(ErrClosed)
	}
	return s, nil
}

// hopeless reports whether the session has been out of reach for so long that the
// server must have given it up, if it is the server that it was. A server whose data
// were lost or restored turns away a client that has seen a later transaction, every
// time; the library would never recover.
func (l *dialed) hopeless(now time.Duration) bool {
	s := l.session()
	return s != nil && now > time.Duration(s.validUntil.Load())+3*s.negotiated()
}

// expired is called by the socket when the server says so in a handshake.
func (l *dialed) expired() {
	l.mu.Lock()
	old := l.current
	l.current = nil
	l.mu.Unlock()
	if old != nil {
		l.client.options.logger.Warn("zklock: session expired", "session", old.String())
		old.end(zk.ErrSessionExpired)
	}
}
