package pglock

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// A line carries the connections of one process. It can be cut, and lose messages.
type line struct {
	deaf     atomic.Bool  // it loses notifications, and nobody is told
	renewals atomic.Int64 // of sessions

	mu    sync.Mutex // guards the fields below
	whole chan struct{}
	over  bool
	lanes map[*lane]struct{}
	hook  func() (lose bool)
}

func newLine() *line {
	l := &line{whole: make(chan struct{}), lanes: make(map[*lane]struct{})}
	close(l.whole)
	return l
}

// passes returns a channel that is closed while the line is whole.
func (l *line) passes() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.whole
}

// sever stops everything that is sent in either direction; nobody is told. heal breaks the old
// connections.
func (l *line) sever() (heal func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	whole := make(chan struct{})
	l.whole = whole
	return sync.OnceFunc(func() {
		l.reset()
		close(whole)
	})
}

// reset breaks all connections.
func (l *line) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.lanes {
		c.close()
	}
	clear(l.lanes)
}

// close breaks all connections, and there will be none any more.
func (l *line) close() {
	l.mu.Lock()
	l.over = true
	l.mu.Unlock()
	l.reset()
}

// messages has hook see each message to the process, but those that keep its session.
func (l *line) messages(hook func() (lose bool)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hook = hook
}

func (l *line) loses() bool {
	l.mu.Lock()
	hook := l.hook
	l.mu.Unlock()
	return hook != nil && hook()
}

var errOverLine = errors.New("the process has ended")

func (l *line) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	select {
	case <-l.passes():
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	server, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	near, far := net.Pipe()
	c := &lane{line: l, far: far, server: server, ended: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		c.close()
		near.Close()
		return nil, errOverLine
	}
	l.lanes[c] = struct{}{}
	go c.up()
	go c.down()
	return &end{near, server.RemoteAddr()}, nil
}

// An end of a lane looks like a connection to the server.
type end struct {
	net.Conn
	remote net.Addr
}

func (e *end) RemoteAddr() net.Addr { return e.remote }

// A lane is one connection.
type lane struct {
	line        *line
	far, server net.Conn
	once        sync.Once
	ended       chan struct{}
	keeps       atomic.Bool // the request under way keeps the session, or is for the harness
}

func (c *lane) close() {
	c.once.Do(func() {
		close(c.ended)
		c.far.Close()
		c.server.Close()
	})
}

// pass waits until the line is whole, and reports whether the connection still is.
func (c *lane) pass() bool {
	select {
	case <-c.line.passes():
	case <-c.ended:
	}
	select {
	case <-c.ended:
		return false
	default:
		return true
	}
}

// hang ends the connection when one side has: the other one hears of that if the line is whole.
func (c *lane) hang() {
	c.pass()
	c.close()
}

// up carries what the process says.
func (c *lane) up() {
	defer c.hang()
	for chunk := make([]byte, 1<<16); ; {
		n, err := c.far.Read(chunk)
		if err != nil || !c.pass() {
			return
		}
		c.keeps.Store(keepsSession(chunk[:n]))
		if bytes.Contains(chunk[:n], []byte("tierlock.beat")) {
			c.line.renewals.Add(1)
		}
		if _, err := c.server.Write(chunk[:n]); err != nil {
			return
		}
	}
}

func keepsSession(request []byte) bool {
	for _, s := range []string{"tierlock.version", "pg_proc", "tierlock.open", "tierlock.beat", "WHERE session = $1", "LISTEN", "SET SESSION",
		"pg_backend_pid", "has_table_privilege", "tierlock.drop",
		"tierlock.quarantine", "\x00look\x00", "\x00name\x00"} {
		if bytes.Contains(request, []byte(s)) {
			return true
		}
	}
	return false
}

// down carries what the server says: answers, each up to the server's readiness for the next request,
// and notifications.
func (c *lane) down() {
	defer c.hang()
	c.keeps.Store(true) // the greeting
	var message bytes.Buffer
	for {
		var header [5]byte
		if _, err := io.ReadFull(c.server, header[:]); err != nil {
			return
		}
		message.Write(header[:])
		if _, err := io.CopyN(&message, c.server, int64(binary.BigEndian.Uint32(header[1:]))-4); err != nil {
			return
		}
		const ready, notification = 'Z', 'A'
		kind := header[0]
		if kind != ready && (kind != notification || message.Bytes()[0] != notification) {
			continue
		}
		if kind == notification && c.line.deaf.Load() {
			message.Reset()
			continue
		}
		if counts := kind == notification || !c.keeps.Load(); counts && c.line.loses() {
			c.close()
			return
		}
		if !c.pass() {
			return
		}
		if _, err := c.far.Write(message.Bytes()); err != nil {
			return
		}
		message.Reset()
	}
}
