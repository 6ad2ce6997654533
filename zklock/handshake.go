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
	if margin := c.margin(timeout); timeout <= margin {
		return nil, fmt.Errorf("the server granted a session timeout of %v, not above the lease margin of %v",
			timeout, margin)
	}
	l.mu.Lock()
	old := l.current
	if old != nil && old.id == id {
		l.mu.Unlock()
		old.resume(timeout, sentAt)
		return old, nil
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
