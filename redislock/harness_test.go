package redislock

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/child"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/redisserver"
	"github.com/tierlock/tierlock/tier"
)

// A process stands for a process that uses the library. It has a store with a client of its own, and a test can disturb the connections of
// that client.
type process struct {
	*store
	client *redis.Client
	wire   *wire
}

// startAt starts a process that uses the servers at these addresses. The process ends with the test.
func startAt(t testing.TB, addrs []string, opts ...tier.RegistryOption) *process {
	t.Helper()
	p := launch(t, addrs, opts...)
	t.Cleanup(p.end)
	return p
}

// launch starts a process and waits for its session.
func launch(t testing.TB, addrs []string, opts ...tier.RegistryOption) *process {
	t.Helper()
	o, _, err := newOptions(append([]tier.RegistryOption{tier.WithLeaseTTL(ttl)}, opts...))
	need.OK(t, err)
	w := newWire(t, addrs)
	p := &process{wire: w, client: redis.NewClient(&redis.Options{Dialer: w.dial})}
	p.store = open(p.client, o)
	claim := need.Get(p.tier.Claim("no lock", second.Options{}))(t)
	need.Get(claim.Contenders(soon(t)))(t) // waits for a session
	return p
}

// end ends the process without a request to Redis, because it closes the client before the tier.
func (p *process) end() {
	p.client.Close()
	p.wire.reset()
	p.tier.Close()
	p.wire.network.Close()
}

// kill ends the process without a Goodbye. Its contenders stay in Redis until their leases end.
func (p *process) kill() {
	p.wire.sever()
	p.end()
}

// A wire carries the connections of one client over a network that can be cut.
type wire struct {
	network *child.Network
	addrs   []string // the addresses of the servers

	mu    sync.Mutex // guards the fields below
	conns map[*conn]bool
	rules map[string]func() (lose bool)
}

func newWire(t testing.TB, addrs []string) *wire {
	t.Helper()
	w := &wire{network: child.NewNetwork(), conns: make(map[*conn]bool), rules: make(map[string]func() bool)}
	for i, addr := range addrs {
		from, err := net.Listen("tcp", "127.0.0.1:0")
		to, wrong := net.ResolveTCPAddr("tcp", addr)
		need.OK(t, cmp.Or(err, wrong))
		w.network.Join(child.Way{From: 0, To: i + 1}, from, to)
		w.addrs = append(w.addrs, from.Addr().String())
	}
	return w
}

// dial connects to the primary.
func (w *wire) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	inner, err := redisserver.Dial(ctx, w.addrs)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: inner, wire: w}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns[c] = true
	return c, nil
}

// sever blocks all traffic in both directions, without an error. heal breaks the old connections, and delivers what was sent before.
func (w *wire) sever() (heal func()) {
	w.network.Isolate(0)
	return sync.OnceFunc(func() {
		w.network.Heal()
		w.reset()
	})
}

// reset breaks all connections.
func (w *wire) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		c.Conn.Close()
	}
	clear(w.conns)
}

// deafen blocks all messages on subscribed connections, without an error.
func (w *wire) deafen() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		c.deaf.Store(c.listens.Load())
	}
}

// listens reports whether a connection is subscribed and not blocked.
func (w *wire) listens() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		if c.listens.Load() && !c.deaf.Load() {
			return true
		}
	}
	return false
}

// on sets a rule for messages to the process. The name of an operation as kind selects the answers to it, "message" selects Pub/Sub
// messages, and "all" selects all messages that do not keep the session alive. If rule returns true, the message is lost, and its
// connection breaks.
func (w *wire) on(kind string, rule func() (lose bool)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rules[kind] = rule
}

func (w *wire) loses(kind string) bool {
	w.mu.Lock()
	rule, all := w.rules[kind], w.rules["all"]
	w.mu.Unlock()
	return rule != nil && rule() || all != nil && kind != "" && kind != "beat" && all()
}

var operations = []string{"script", "enter", "try", "beat", "look", "leave", "share", "weigh", "ask", "list", "save", "load"}

// A conn knows to which request the next answer belongs.
type conn struct {
	net.Conn
	wire    *wire
	kind    atomic.Value
	listens atomic.Bool
	deaf    atomic.Bool
}

func (c *conn) Write(b []byte) (int, error) {
	kind := ""
	for _, op := range operations {
		if bytes.Contains(b, []byte("\r\n"+op+"\r\n")) {
			kind = op
		}
	}
	if bytes.Contains(b, []byte(records)) { // a process without contenders renews its session with this request
		kind = "beat"
	}
	c.kind.Store(kind)
	if bytes.Contains(b, []byte("subscribe")) {
		c.listens.Store(true)
	}
	return c.Conn.Write(b)
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	for err == nil && c.deaf.Load() {
		n, err = c.Conn.Read(b)
	}
	if err != nil || n == 0 {
		return n, err
	}
	kind, _ := c.kind.Load().(string)
	if bytes.Contains(b[:n], []byte("\r\nmessage\r\n")) {
		kind = "message"
	}
	if c.wire.loses(kind) {
		c.Close()
		return 0, io.EOF
	}
	return n, nil
}

func (c *conn) Close() error {
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	delete(c.wire.conns, c)
	return c.Conn.Close()
}
