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

// ttl is the lease of processes in tests.
const ttl = 2 * time.Second

func TestMain(m *testing.M) {
	mysql.SetLogger(new(mysql.NopLogger)) // connections break in most tests
	shared.Main(m)
}

// shared is the server that tests share, with the tables, and a pool of one who looks from outside the library.
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

// migrated returns a pool of root at a server that has the tables.
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

// A process is what one process has of the library, over a pool of its own whose messages and connections can be interfered with.
type process struct {
	*queue.Tier
	db   *sql.DB
	wire *wire
}

// begin starts a process that ends with the test.
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

// Close ends the process in good order.
func (p *process) Close() error {
	p.Tier.Close()
	p.wire.reset()
	p.db.Close()
	p.wire.network.Close()
	return nil
}

// kill ends the process without a goodbye: what it has at the server stays until its lease ends.
func (p *process) kill() {
	p.wire.end()
	p.Close()
}

// forSuite is the process as the suite takes it.
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

// A wire carries the connections of one process, by way of a network that can be cut.
type wire struct {
	network *child.Network
	addr    string // where the server is found

	mu    sync.Mutex // guards the fields below
	over  bool
	conns map[*wired]bool
	loses func() bool // nil: nothing
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

// sever silently stops everything that is sent in either direction. heal breaks the old connections, and delivers what was on the
// way.
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

// end breaks all connections, and there will be none any more.
func (w *wire) end() {
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
	w.reset()
}

// messages has hook see each message to the process, but those that keep its session.
func (w *wire) messages(hook func() (lose bool)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.loses = hook
}

// A wired connection knows which answer comes next.
type wired struct {
	net.Conn
	wire *wire

	mu         sync.Mutex // guards the fields below
	preparing  string
	statements map[uint32]string
	executes   string // the statement whose answer comes next; "" if that was seen
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

// keeps are statements that keep the session, or prepare what follows.
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
