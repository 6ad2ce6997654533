package zklock

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
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

// otherProtocol tells by the first bytes of an answer to the handshake what gave it, if
// that is not ZooKeeper.
func otherProtocol(answer *bufio.Reader) error {
	switch head, _ := answer.Peek(4); {
	case string(head) == "HTTP":
		return errors.New("this is an HTTP server, not ZooKeeper")
	case len(head) == 4 && head[0] == 0x15 && head[1] == 3: // an alert
		return errors.New("the server wants TLS (see WithDialContext)")
	}
	return nil
}

// handshakeError adds what may be behind the end of a connection before the answer.
func handshakeError(err error) error {
	switch {
	case hungUp(err):
		return fmt.Errorf("the server hung up; it may want TLS (see WithDialContext), have no quorum, "+
			"be behind what this client has seen, or be over its maxClientCnxns: %w", err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("no answer; the server hangs, or it is not ZooKeeper (an HTTP server waits for more): %w", err)
	}
	return err
}

// dialError is for dialers that do more than connect: a server whose ZooKeeper takes the
// start of TLS for a frame hangs up.
func dialError(address string, err error) error {
	if hungUp(err) {
		return fmt.Errorf("dial %s: the server hung up on the dialer; it may have no TLS on this port: %w", address, err)
	}
	return err
}

func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
}
