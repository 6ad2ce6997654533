package pglock

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tierlock/tierlock/internal/test/need"
)

// advisoryWrites counts the requests of all processes that change the queue of an advisory lock, or its value. The tier suite uses it as
// the number of writes.
var advisoryWrites atomic.Int64

// A network carries the connections of one process. A network can be cut, and can lose messages.
type network struct {
	deaf atomic.Bool // the network drops notifications, without an error

	mu    sync.Mutex // guards the fields below
	whole chan struct{}
	over  bool
	lanes map[*lane]struct{}
	hook  func(request string) (lose bool)

	requested func([]byte) // called with each request before it is passed on
	closing   func()       // called before the process closes a connection
}

func newNetwork() *network {
	n := &network{whole: make(chan struct{}), lanes: make(map[*lane]struct{}), requested: func([]byte) {}, closing: func() {}}
	close(n.whole)
	return n
}

// passes returns a channel that is closed while the network is connected.
func (n *network) passes() (whole <-chan struct{}) {
	n.locked(func() { whole = n.whole })
	return whole
}

// sever blocks all traffic in both directions, without an error. heal breaks the old connections.
func (n *network) sever() (heal func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	whole := make(chan struct{})
	n.whole = whole
	return sync.OnceFunc(func() {
		n.reset()
		close(whole)
	})
}

// reset breaks all connections.
func (n *network) reset() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.lanes {
		c.close()
	}
	clear(n.lanes)
}

// close breaks all connections, and refuses new ones.
func (n *network) close() {
	n.locked(func() { n.over = true })
	n.reset()
}

// mute blocks all connections whose newest request contains the text, without an error, until the end of the test.
func (n *network) mute(request string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.lanes {
		if newest := c.request.Load(); newest != nil && bytes.Contains(*newest, []byte(request)) {
			c.muted.Store(true)
		}
	}
}

// messages makes hook be called for each message to the process, except messages that keep its session alive.
func (n *network) messages(hook func() (lose bool)) {
	n.locked(func() { n.hook = func(string) bool { return hook != nil && hook() } })
}

// answersTo makes hook be called for each answer to a request that contains a text.
func (n *network) answersTo(text string, hook func() (lose bool)) {
	n.locked(func() { n.hook = func(request string) bool { return strings.Contains(request, text) && hook() } })
}

func (n *network) onRequest(f func([]byte)) { n.locked(func() { n.requested = f }) }

func (n *network) onClose(f func()) { n.locked(func() { n.closing = f }) }

func (n *network) locked(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

// hooks returns the functions that are to be called at present.
func (n *network) hooks() (requested func([]byte), closing func(), hook func(request string) (lose bool)) {
	n.locked(func() { requested, closing, hook = n.requested, n.closing, n.hook })
	return requested, closing, hook
}

var errOverLine = errors.New("the process has ended")

func (n *network) dial(ctx context.Context, kind, addr string) (net.Conn, error) {
	select {
	case <-n.passes():
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	server, err := new(net.Dialer).DialContext(ctx, kind, addr)
	if err != nil {
		return nil, err
	}
	near, far := net.Pipe()
	c := &lane{network: n, far: far, server: server, ended: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.over {
		c.close()
		near.Close()
		return nil, errOverLine
	}
	n.lanes[c] = struct{}{}
	go c.up()
	go c.down()
	return &end{near, server.RemoteAddr(), n}, nil
}

// An end is the process's side of a lane. To the process, it looks like a connection to the server.
type end struct {
	net.Conn
	remote  net.Addr
	network *network
}

func (e *end) RemoteAddr() net.Addr { return e.remote }

func (e *end) Close() error {
	_, closing, _ := e.network.hooks()
	closing()
	return e.Conn.Close()
}

// A lane carries one connection of the process.
type lane struct {
	network     *network
	far, server net.Conn
	once        sync.Once
	ended       chan struct{}
	request     atomic.Pointer[[]byte] // the newest request; nil before the first
	muted       atomic.Bool
}

func (c *lane) close() {
	c.once.Do(func() {
		close(c.ended)
		c.far.Close()
		c.server.Close()
	})
}

// pass waits until the network is connected, and reports whether the connection still exists.
func (c *lane) pass() bool {
	whole := c.network.passes()
	if c.muted.Load() {
		whole = nil
	}
	select {
	case <-whole:
	case <-c.ended:
	}
	return !need.Closed(c.ended)
}

// hang ends a connection that one side has closed. The other side notices that when the network is connected.
func (c *lane) hang() {
	c.pass()
	c.close()
}

// up passes the requests of the process on to the server.
func (c *lane) up() {
	defer c.hang()
	for chunk := make([]byte, 1<<16); ; {
		n, err := c.far.Read(chunk)
		if err != nil {
			return
		}
		request := bytes.Clone(chunk[:n])
		requested, _, _ := c.network.hooks()
		requested(request)
		if !c.pass() {
			return
		}
		c.request.Store(&request)
		if request[0] == 'B' && containsAny(request, "\x00lock", "\x00leave", "\x00share\x00") || containsAny(request, "tierlock.keep") {
			advisoryWrites.Add(1)
		}
		if _, err := c.server.Write(request); err != nil {
			return
		}
	}
}

func containsAny(b []byte, texts ...string) bool {
	return slices.ContainsFunc(texts, func(s string) bool { return bytes.Contains(b, []byte(s)) })
}

// keeps reports whether the newest request keeps the session alive or prepares a connection. Hooks are not called for the answer to such a
// request.
func (c *lane) keeps() bool {
	request := c.request.Load()
	return request == nil || containsAny(*request, "tierlock.version", "pg_proc", "tierlock.open", "tierlock.beat", "WHERE session = $1",
		"LISTEN", "pg_settings", "pg_backend_pid", "has_table_privilege", "tierlock.drop", "quiet_ms('advisory'", "\x00look\x00", "\x00name\x00")
}

// down passes the server's messages on to the process: notifications and answers. An answer ends with the message that the server is ready
// for the next request.
func (c *lane) down() {
	defer c.hang()
	for {
		var message bytes.Buffer
		const ready, notification = 'Z', 'A'
		for kind := byte(0); kind != ready && (kind != notification || message.Bytes()[0] != notification); {
			var header [5]byte
			if _, err := io.ReadFull(c.server, header[:]); err != nil {
				if c.pass() {
					c.far.Write(message.Bytes()) // this message has the reason why the server ends the connection
				}
				return
			}
			message.Write(header[:])
			if _, err := io.CopyN(&message, c.server, int64(binary.BigEndian.Uint32(header[1:]))-4); err != nil {
				return
			}
			kind = header[0]
		}
		notified := message.Bytes()[0] == notification
		if notified && c.network.deaf.Load() {
			continue
		}
		if request := c.request.Load(); request != nil && containsAny(*request, "\x00try") && containsAny(message.Bytes(), "SELECT 1\x00") {
			advisoryWrites.Add(1)
		}
		if _, _, loses := c.network.hooks(); loses != nil && (notified || !c.keeps()) && loses(string(*c.request.Load())) {
			c.close()
			return
		}
		if !c.pass() {
			return
		}
		if _, err := c.far.Write(message.Bytes()); err != nil {
			return
		}
	}
}
