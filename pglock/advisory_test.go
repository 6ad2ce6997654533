package pglock

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tierlock/tierlock/internal/pgserver"
	"github.com/tierlock/tierlock/internal/pgserver/pgservertest"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/tiertest"
	"github.com/tierlock/tierlock/pglock/internal/advisory"
)

func TestAdvisoryTier(t *testing.T) {
	e := pgservertest.StartEnsemble(t, 3, pgserver.Config{NoSync: true, Synchronous: true})
	url := pgserver.PlainURL(e.Addrs()...)
	pool := poolAt(t, url, nil)
	if err := Migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	pool.Close()
	tiertest.Run(t, func(t *testing.T, test func(*testing.T, tiertest.Harness)) {
		test(t, advisoryHarness(t, e, url))
	}).Record(t, "PostgreSQL, advisory", "../docs/promises/postgres-advisory.md")
}

// advisoryHarness is a primary and standbys, which have no part in the locks.
func advisoryHarness(t *testing.T, e *pgserver.Ensemble, url string) tiertest.Harness {
	h := ensembleHarness(t, e, url)
	o := &operator{url: url}
	t.Cleanup(o.leave)
	var writes atomic.Int64
	h.Dial = func(tb testing.TB, lease time.Duration) *tiertest.Process {
		return launchAdvisory(tb, url, &writes, WithLeaseTTL(lease)).forSuite()
	}
	h.Writes = writes.Load
	h.Unpromised = map[string]string{
		"contenders":     "a token is drawn once the lock is granted, so one that waits has none",
		"share-troubled": "the lock goes with the connection that loses a message",
	}
	h.Left = func(path string) int {
		return o.look(t.Context(), "SELECT count(DISTINCT pid) FROM pg_locks WHERE "+ofLock, advisory.KeyOf(path))
	}
	h.Remove = func(path string, i int) {
		n, err := o.do(soon(t), `WITH queue AS (SELECT pid FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE `+ofLock+`
			ORDER BY granted DESC, CASE WHEN granted THEN split_part(application_name, ' ', 2)::bigint END, waitstart OFFSET $2 LIMIT 1)
			SELECT count(*) FROM queue WHERE pg_terminate_backend(pid)`, advisory.KeyOf(path), i)
		if err == nil && n == 0 {
			err = errors.New("nobody there")
		}
		if err != nil {
			t.Error(err)
		}
	}
	return h
}

const ofLock = "locktype = 'advisory' AND objsubid = 1 AND (classid::bigint << 32) | objid::bigint = $1"

// An advisor is what one process has of the advisory tier.
type advisor struct {
	second.Tier
	pool *pgxpool.Pool
	line *line
}

func launchAdvisory(tb testing.TB, url string, writes *atomic.Int64, opts ...Option) *advisor {
	tb.Helper()
	o, _, err := newOptions(append([]Option{WithLeaseTTL(ttl)}, opts...))
	if err != nil {
		tb.Fatal(err)
	}
	a := &advisor{line: newLine()}
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		tb.Fatal(err)
	}
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := a.line.dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &tally{Conn: conn, writes: writes}, nil
	}
	if a.pool, err = pgxpool.NewWithConfig(context.Background(), config); err != nil {
		tb.Fatal(err)
	}
	a.Tier = advisory.Open(o.advisory(a.pool))
	c, err := a.Claim("/x", second.Options{})
	if err == nil {
		_, err = c.Contenders(soon(tb)) // once it is connected
	}
	if err != nil {
		a.Close()
		tb.Fatal(err)
	}
	return a
}

func (a *advisor) Close() error {
	a.Tier.Close()
	a.line.close()
	a.pool.Close()
	return nil
}

// kill ends the process without a goodbye.
func (a *advisor) kill() {
	a.line.close()
	a.Close()
}

func (a *advisor) forSuite() *tiertest.Process {
	return &tiertest.Process{
		Tier:     a,
		Cut:      a.line.sever,
		Kill:     a.kill,
		Messages: a.line.messages,
		Blind:    func(g second.Grant) { g.(interface{ StopWatchdog() }).StopWatchdog() },
	}
}

// A tally counts the requests that change who has or wants a lock: what this tier has for writes.
type tally struct {
	net.Conn
	writes *atomic.Int64
	tries  atomic.Bool // the answer says whether it is one
}

func (c *tally) Write(b []byte) (int, error) {
	const bind = 'B'
	if b[0] != bind { // the session is set up
		return c.Conn.Write(b)
	}
	for _, statement := range []string{"\x00lock", "\x00leave", "\x00share\x00"} {
		if bytes.Contains(b, []byte(statement)) {
			c.writes.Add(1)
			break
		}
	}
	if bytes.Contains(b, []byte("\x00try")) {
		c.tries.Store(true)
	}
	return c.Conn.Write(b)
}

func (c *tally) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if bytes.Contains(b[:n], []byte("SELECT 1\x00")) && c.tries.Swap(false) {
		c.writes.Add(1)
	}
	if bytes.Contains(b[:n], []byte("SELECT 0\x00")) {
		c.tries.Store(false)
	}
	return n, err
}
