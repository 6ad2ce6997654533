package pglock

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/tiertest"
)

// A process is what one process has of the library: a store, over a pool of its own whose messages and
// connections can be interfered with.
type process struct {
	*store
	pool *pgxpool.Pool
	line *line
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
	o, _, err := newOptions(append([]Option{WithLeaseTTL(ttl)}, opts...))
	if err != nil {
		t.Fatal(err)
	}
	p := &process{line: newLine()}
	p.pool = poolAt(t, url, p.line)
	if p.store, err = open(p.pool, o); err != nil {
		t.Fatal(err)
	}
	if _, err := p.await(soon(t), true); err != nil {
		p.end()
		t.Fatal(err)
	}
	return p
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
		Blind:    func(g second.Grant) { g.(*contender).session.StopWatchdog() },
	}
}

// withPool is a process whose pool is its own.
type withPool struct{ *process }

func (p withPool) Close() error {
	p.end()
	return nil
}
