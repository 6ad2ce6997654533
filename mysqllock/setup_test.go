package mysqllock

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/child"
	"github.com/tierlock/tierlock/internal/test/mysqlserver"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/tiertest"
	"github.com/tierlock/tierlock/internal/test/waittest"
)

var soon = waittest.Soon

// ttl is the lease TTL of processes in tests.
const ttl = 2 * time.Second

func TestMain(m *testing.M) {
	mysql.SetLogger(new(mysql.NopLogger)) // the driver would log each connection that the tests break
	shared.Main(m)
}

// shared is the server that the tests share. It has the tables, and a pool that belongs to no process.
var shared = waittest.Shared[site]{Start: func() (s site, stop func(), err error) {
	if s.server, err = mysqlserver.Start(context.Background(), mysqlserver.Config{NoSync: true}); err != nil {
		return s, nil, err
	}
	s.db, err = migrated(context.Background(), s.server.Addr())
	return s, func() {
		s.db.Close()
		s.server.Stop()
	}, err
}}

type site struct {
	server *mysqlserver.Server
	db     *sql.DB
}

// migrated creates the tables at a server, and returns a pool of the user root.
func migrated(ctx context.Context, addr string) (*sql.DB, error) {
	db, err := sql.Open("mysql", mysqlserver.DSN(addr))
	if err == nil {
		err = Migrate(ctx, db)
		db.Close()
	}
	if err != nil {
		return nil, err
	}
	return sql.Open("mysql", mysqlserver.RootDSN(addr))
}

// A process stands for a process that uses the library. It has a tier with a pool of its own, and a test can disturb the connections of
// that pool.
type process struct {
	*queue.Tier
	db   *sql.DB
	wire *wire
}

// begin starts a process. It ends with the test.
func begin(t testing.TB, addr string, lease time.Duration) *process {
	t.Helper()
	settings := second.Defaults
	settings.TTL = lease
	config := need.Get(mysql.ParseDSN(mysqlserver.DSN(addr)))(t)
	p := &process{wire: newWire(t, addr)}
	config.DialFunc = p.wire.dial
	p.db = sql.OpenDB(need.Get(mysql.NewConnector(config))(t))
	p.Tier = open(p.db, settings)
	t.Cleanup(func() { p.Close() })
	need.OK(t, p.Ready(soon(t)))
	return p
}

// Close ends the process with a Goodbye.
func (p *process) Close() error {
	p.Tier.Close()
	p.wire.reset()
	p.db.Close()
	p.wire.network.Close()
	return nil
}

// kill ends the process without a Goodbye. Its contenders stay at the server until its session expires.
func (p *process) kill() {
	p.wire.end()
	p.Close()
}

// forSuite returns the process in the form that the suite needs.
func (p *process) forSuite() *tiertest.Process {
	return &tiertest.Process{
		Tier:     p,
		Cut:      p.wire.sever,
		Kill:     p.kill,
		Messages: p.wire.messages,
		Blind:    func(g second.Grant) { g.(*queue.Contender).StopWatchdog() },
		Sleep:    func(g second.Grant, d time.Duration) { g.(*queue.Contender).Clock().Suspend(d) },
	}
}

// A wire carries the connections of one process over a network that can be cut.
type wire struct {
	network *child.Network
	addr    string // the address of the server

	mu    sync.Mutex // guards the fields below
	over  bool
	conns map[*wired]bool
	loses func() bool // reports whether to lose the next message; nil if none is lost
}

func newWire(t testing.TB, addr string) *wire {
	t.Helper()
	w := &wire{network: child.NewNetwork(), conns: make(map[*wired]bool)}
	from := need.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	to := need.Get(net.ResolveTCPAddr("tcp", addr))(t)
	w.network.Join(child.Way{From: 0, To: 1}, from, to)
	w.addr = from.Addr().String()
	return w
}

func (w *wire) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	inner, err := new(net.Dialer).DialContext(ctx, "tcp", w.addr)
	if err != nil {
		return nil, err
	}
	c := &wired{Conn: inner, wire: w, statements: make(map[uint32]string)}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		inner.Close()
		return nil, net.ErrClosed
	}
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

// end breaks all connections, and refuses new ones.
func (w *wire) end() {
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
	w.reset()
}

// messages makes hook be called for each message to the process, except messages that keep its session alive.
func (w *wire) messages(hook func() (lose bool)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.loses = hook
}

// A wired connection knows to which statement the next answer belongs.
type wired struct {
	net.Conn
	wire *wire

	mu         sync.Mutex // guards the fields below
	preparing  string
	statements map[uint32]string
	executes   string // the statement to which the next answer belongs; "" once that answer has begun
}

const prepareCommand, executeCommand = 0x16, 0x17

func (c *wired) Write(b []byte) (int, error) {
	c.mu.Lock()
	switch {
	case len(b) > 5 && b[4] == prepareCommand:
		c.preparing = string(b[5:])
	case len(b) > 9 && b[4] == executeCommand:
		c.executes = c.statements[binary.LittleEndian.Uint32(b[5:])]
	}
	c.mu.Unlock()
	return c.Conn.Write(b)
}

// keeps lists parts of the statements that keep the session alive. The hook of messages is not called for the answers to these.
var keeps = []string{"tierlock_beat", "tierlock_open", "tierlock_check", "tierlock_drop", "tierlock_finish",
	"GET_LOCK", "WHERE session = ?"}

func (c *wired) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil || n == 0 {
		return n, err
	}
	c.mu.Lock()
	if c.preparing != "" && n > 8 && b[4] == 0 {
		c.statements[binary.LittleEndian.Uint32(b[5:])] = c.preparing
	}
	c.preparing = ""
	statement := c.executes
	c.executes = ""
	c.mu.Unlock()
	keep := statement == "" || slices.ContainsFunc(keeps, func(s string) bool { return bytes.Contains([]byte(statement), []byte(s)) }) &&
		statement != newsSQL
	if keep {
		return n, nil
	}
	c.wire.mu.Lock()
	loses := c.wire.loses
	c.wire.mu.Unlock()
	if loses != nil && loses() {
		c.Close()
		return 0, io.EOF
	}
	return n, nil
}

func (c *wired) Close() error {
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	delete(c.wire.conns, c)
	return c.Conn.Close()
}
