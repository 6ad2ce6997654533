package pglock

import (
	"bytes"
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tierlock/tierlock/internal/pgserver"
	"github.com/tierlock/tierlock/pglock/internal/advisory"
)

// Its session is asked anyway, but each 15 s.
func TestHolderIsToldOfAWaiter(t *testing.T) {
	t.Parallel()
	url := pgserver.PlainURL(server(t).Addr())
	g := startAdvisory(t, url, WithLeaseTTL(unhurried)).mustAcquire(t, lockPath(t))
	granted, _ := startAdvisory(t, url, WithLeaseTTL(unhurried)).waitAt(t, lockPath(t))
	begun := time.Now()
	eventually(t, "the holder is told", g.Contested().Raised)
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("the holder was told after %v", took)
	}
	mustRelease(t, g)
	mustRelease(t, <-granted)
}

// A connection can die without a word to the client, who would wait for an answer for ever.
func TestWaiterWhoseSessionIsGoneQueuesAgain(t *testing.T) {
	t.Parallel()
	url := pgserver.PlainURL(server(t).Addr())
	g := startAdvisory(t, url, WithLeaseTTL(unhurried)).mustAcquire(t, lockPath(t))
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	deaf := make(chan struct{})
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return &ears{Conn: conn, deaf: deaf, closed: make(chan struct{})}, err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	o, _, err := newOptions([]Option{WithLeaseTTL(ttl)})
	if err != nil {
		t.Fatal(err)
	}
	a := &advisor{Tier: advisory.Open(o.advisory(pool)), pool: pool, line: newLine()}
	t.Cleanup(func() { a.Tier.Close() })
	granted, _ := a.waitAt(t, lockPath(t))
	const ofWaiter = " FROM pg_locks WHERE NOT granted AND " + ofLock
	pid := number(t, outside(t), "SELECT max(pid)"+ofWaiter, advisory.KeyOf(lockPath(t)))
	close(deaf)
	exec(t, "SELECT pg_terminate_backend($1)", pid)
	eventually(t, "it waits again", func() bool {
		return number(t, outside(t), "SELECT coalesce(max(pid), 0)"+ofWaiter+" AND pid <> $2", advisory.KeyOf(lockPath(t)), pid) > 0
	})
	mustRelease(t, g)
	mustRelease(t, <-granted)
}

// Ears are a connection that hears nothing any more once it is deaf, if it waits for a lock by then.
type ears struct {
	net.Conn
	deaf, closed chan struct{}
	once         sync.Once
	mu           sync.Mutex // guards the field below
	waits        bool
}

func (e *ears) Write(b []byte) (int, error) {
	e.mu.Lock()
	select {
	case <-e.deaf:
	default:
		e.waits = e.waits || b[0] == 'B' && bytes.Contains(b, []byte("\x00lock")) // it binds that statement
	}
	e.mu.Unlock()
	return e.Conn.Write(b)
}

func (e *ears) Read(b []byte) (int, error) {
	n, err := e.Conn.Read(b)
	e.mu.Lock()
	waits := e.waits
	e.mu.Unlock()
	select {
	case <-e.deaf:
		if waits {
			<-e.closed
			return 0, net.ErrClosed
		}
	default:
	}
	return n, err
}

func (e *ears) Close() error {
	e.once.Do(func() { close(e.closed) })
	return e.Conn.Close()
}
