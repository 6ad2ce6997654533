package pglock

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/tiertest"
)

// A process is what one process has of the library: a tier, over a pool of its own whose messages and connections can be
// interfered with.
type process struct {
	*queue.Tier
	store *store
	pool  *pgxpool.Pool
	line  *line
}

// startAt starts a process that ends with the test.
func startAt(t *testing.T, url string, opts ...Option) *process {
	t.Helper()
	p := launch(t, url, opts...)
	t.Cleanup(p.end)
	return p
}

// launch starts a process and waits for its session.
func launch(t testing.TB, url string, opts ...Option) *process {
	t.Helper()
	l := newLine()
	p := begin(t, poolAt(t, url, l), opts...)
	p.line = l
	eventually(t, "a session", func() bool { return p.session(t) != "" })
	c, err := p.Claim("/x", second.Options{})
	if err == nil {
		_, err = c.Contenders(soon(t)) // the process knows of it, too
	}
	if err != nil {
		p.end()
		t.Fatal(err)
	}
	return p
}

// begin starts a process on a pool, and waits for nothing.
func begin(t testing.TB, pool *pgxpool.Pool, opts ...Option) *process {
	t.Helper()
	o, _, err := newOptions(append([]Option{WithLeaseTTL(ttl), WithLabel(newID())}, opts...))
	if err != nil {
		t.Fatal(err)
	}
	s, err := open(pool, o)
	if err != nil {
		t.Fatal(err)
	}
	return &process{Tier: s.tier, store: s, pool: pool, line: newLine()}
}

// session is that of the process which is not over, as the server knows it by the label, "" if there is none.
func (p *process) session(t testing.TB) (id string) {
	t.Helper()
	conn, err := pgx.Connect(soon(t), p.pool.Config().ConnString()) // past the line
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	const sessionSQL = "SELECT id::text FROM tierlock.session WHERE label = $1 AND expires > clock_timestamp()"
	err = conn.QueryRow(soon(t), sessionSQL, p.store.options.label).Scan(&id)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		t.Fatal(err)
	}
	return id
}

// poolAt returns a pool that is on the line l, if that is not nil.
func poolAt(t testing.TB, url string, l *line) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	if l != nil {
		config.ConnConfig.DialFunc = l.dial
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	return pool
}

// end ends the process in good order.
func (p *process) end() {
	p.Close()
	p.line.close()
	p.pool.Close()
}

// kill ends the process without a goodbye: what it has at the server stays until its lease ends.
func (p *process) kill() {
	p.line.close()
	p.end()
}

// forSuite is the process as the suite takes it, which closes no pools.
func (p *process) forSuite() *tiertest.Process {
	return &tiertest.Process{
		Tier:     withPool{p},
		Cut:      p.line.sever,
		Kill:     p.kill,
		Messages: p.line.messages,
		Blind:    func(g second.Grant) { g.(*queue.Contender).StopWatchdog() },
	}
}

// withPool is a process whose pool is its own.
type withPool struct{ *process }

func (p withPool) Close() error {
	p.end()
	return nil
}
