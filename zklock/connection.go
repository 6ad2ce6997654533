package zklock

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/go-zookeeper/zk"
)

// dial is the library's dialer.
func (c *Client) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(c.ctx, timeout)
	defer cancel()
	conn, err := c.options.dial(ctx, network, address)
	if err != nil {
		c.trouble(err)
		return nil, err
	}
	s := newSocket(conn, c)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed { // Close has looked for the newest socket already, or will not see this one
		s.kill()
	}
	c.socket = s
	return s, nil
}

// handshakeTimeout bounds the wait for a server that accepts and then says nothing. It
// leaves time to try several servers within one session timeout.
func (c *Client) handshakeTimeout() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	timeout := c.options.sessionTimeout
	if c.session != nil {
		timeout = c.session.negotiated()
	}
	return min(max(timeout/6, 100*time.Millisecond), 2*time.Second)
}

// sessionEstablished is called by the socket at the end of a handshake that was sent at
// sentAt, before the library knows.
func (c *Client) sessionEstablished(id int64, timeout, sentAt time.Duration) (*session, error) {
	if margin := c.margin(timeout); timeout <= margin {
		return nil, fmt.Errorf("the server granted a session timeout of %v, not above the lease margin of %v", timeout, margin)
	}
	until := int64(sentAt + timeout - c.margin(timeout))
	c.mu.Lock()
	old := c.session
	if old != nil && old.id == id {
		c.mu.Unlock()
		old.resume(timeout, sentAt)
		return old, nil
	}
	s := &session{id: id, client: c, nodes: make(map[*Node]struct{})}
	s.timeout.Store(int64(timeout))
	s.validUntil.Store(until)
	c.session = s
	if c.closed {
		s.over = ErrClosed
	}
	c.mu.Unlock()
	if old != nil {
		old.end(zk.ErrSessionExpired)
	}
	return s, nil
}

// sessionExpired is called by the socket when the server says so in a handshake.
func (c *Client) sessionExpired() {
	c.mu.Lock()
	old := c.session
	c.session = nil
	c.mu.Unlock()
	if old != nil {
		c.options.logger.Warn("zklock: session expired", "session", fmt.Sprintf("0x%x", uint64(old.id)))
		old.end(zk.ErrSessionExpired)
	}
}

// onEvent is the library's callback: it must neither block nor call the library.
func (c *Client) onEvent(ev zk.Event) {
	switch {
	case ev.Type != zk.EventSession:
		c.events.fire(ev)
	case ev.State == zk.StateHasSession:
		c.connected.Set()
		c.verify.Set()
		if s := c.current(); s != nil {
			s.ring()
		}
	case ev.State == zk.StateDisconnected:
		c.connected.Clear()
	}
}

func (c *Client) current() *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session
}

// await waits until a session is established and returns it. The error is the cause of
// ctx together with the reason why there is no session.
func (c *Client) await(ctx context.Context) (*session, error) {
	for {
		if err := c.connected.Wait(ctx); err != nil {
			return nil, c.explain(err)
		}
		if s := c.current(); s != nil {
			return s, nil
		}
		// Expired since; the library is about to say that it is disconnected.
		if err := pause(ctx, time.Millisecond); err != nil {
			return nil, c.explain(err)
		}
	}
}

// keep sends heartbeats while anything is held, and looks after the held nodes when the
// connection comes back.
func (c *Client) keep() {
	timer := time.NewTimer(c.heartbeat())
	defer timer.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-c.verify.C():
			c.verify.Clear()
			c.verifyHeld()
		case <-timer.C:
			c.beat()
		}
		timer.Reset(c.heartbeat())
	}
}

func (c *Client) heartbeat() time.Duration {
	timeout := c.options.sessionTimeout
	if s := c.current(); s != nil {
		timeout = s.negotiated()
	}
	return min(timeout/6, 2*time.Second)
}

// beat renews the lease by looking at one of the held nodes. The library's own pings
// come only every third of the session timeout.
func (c *Client) beat() {
	s := c.current()
	if s == nil || !c.connected.IsSet() {
		return
	}
	if held := s.holders(); len(held) > 0 {
		held[0].check() // map order: any of them
	}
}

func (c *Client) verifyHeld() {
	s := c.current()
	if s == nil {
		return
	}
	for _, n := range s.holders() {
		n.check()
	}
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// libraryLog gives the library's messages to the client's logger.
type libraryLog struct{ logger *slog.Logger }

func (l libraryLog) Printf(format string, args ...any) {
	if l.logger.Enabled(context.Background(), slog.LevelDebug) { // a log line belongs to no request
		l.logger.Debug("zklock: client library", "msg", fmt.Sprintf(format, args...))
	}
}
