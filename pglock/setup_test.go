package pglock

import (
	"context"
	"errors"
	"flag"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/tierlock/tierlock/internal/pgserver"
	"github.com/tierlock/tierlock/internal/pgserver/pgservertest"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
)

// suite stops the shared server before goroutines are counted.
type suite struct{ *testing.M }

func (s suite) Run() int {
	defer func() {
		if shared.pool != nil {
			shared.pool.Close()
		}
		if shared.server != nil {
			shared.server.Stop()
		}
	}()
	return s.M.Run()
}

// TestMain has more tests under way than there are processors: they wait for leases.
func TestMain(m *testing.M) {
	flag.Set("test.parallel", "4") // unless it is given
	goleak.VerifyTestMain(suite{m})
}

// ttl is that of processes in tests.
const ttl = 2 * time.Second

var shared struct {
	once   sync.Once
	server *pgserver.Server
	pool   *pgxpool.Pool // of one who looks from outside the library
	err    error
}

// server returns the PostgreSQL that tests share which do it no harm. It has the schema.
func server(t testing.TB) *pgserver.Server {
	t.Helper()
	shared.once.Do(func() {
		shared.server, shared.err = pgserver.Start(context.Background(), pgserver.Config{NoSync: true})
		if shared.err != nil {
			return
		}
		if shared.pool, shared.err = pgxpool.New(context.Background(), pgserver.PlainURL(shared.server.Addr())); shared.err == nil {
			shared.err = Migrate(context.Background(), shared.pool)
		}
	})
	pgservertest.Check(t, shared.err)
	return shared.server
}

// outside returns a pool that looks from outside the library.
func outside(t testing.TB) *pgxpool.Pool {
	t.Helper()
	server(t)
	return shared.pool
}

// start returns another process at the shared server.
func start(t *testing.T, opts ...Option) *process {
	t.Helper()
	return startAt(t, pgserver.PlainURL(server(t).Addr()), opts...)
}

// lockPath is that of the test's own lock.
func lockPath(t *testing.T) string { return "/locks/" + strings.ReplaceAll(t.Name(), "/", "-") }

// A lock is a claim of which nobody asks where its contender stands.
type lock struct {
	second.Claim
	path string
}

func (l lock) Acquire(ctx context.Context) (second.Grant, error) { return l.Claim.Acquire(ctx, nil) }

func (l lock) Requeue(ctx context.Context, old second.Grant) (second.Grant, error) {
	return l.Claim.Requeue(ctx, old, nil)
}

func (p *process) at(t *testing.T, path string) lock {
	t.Helper()
	c, err := p.Claim(path, second.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return lock{c, path}
}

// soon bounds a test's wait.
func soon(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func mustAcquire(t *testing.T, l lock) *queue.Contender {
	t.Helper()
	g, err := l.Acquire(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	return g.(*queue.Contender)
}

func mustRelease(t *testing.T, g second.Grant) {
	t.Helper()
	if err := g.Release(); err != nil {
		t.Fatal(err)
	}
}

// A wait is an acquisition under way.
type wait struct {
	granted chan *queue.Contender
	err     error
	cancel  context.CancelFunc
}

// queueAt begins an acquisition and returns when its contender is in the queue.
func queueAt(t *testing.T, l lock) *wait {
	t.Helper()
	before := len(left(t, l.path))
	w := wanting(t, l.Acquire)
	eventually(t, "a contender in the queue", func() bool { return len(left(t, l.path)) > before })
	return w
}

// wanting begins an acquisition, which ends at the latest with the test.
func wanting(t *testing.T, acquire func(context.Context) (second.Grant, error)) *wait {
	t.Helper()
	ctx, cancel := context.WithCancel(soon(t))
	w := &wait{granted: make(chan *queue.Contender, 1), cancel: cancel}
	go func() {
		defer close(w.granted)
		g, err := acquire(ctx)
		if w.err = err; err == nil {
			w.granted <- g.(*queue.Contender)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-w.granted
	})
	return w
}

func (w *wait) must(t *testing.T) *queue.Contender {
	t.Helper()
	c, ok := <-w.granted
	if !ok {
		t.Fatal(w.err)
	}
	return c
}

func (w *wait) pending(t *testing.T) {
	t.Helper()
	select {
	case c, ok := <-w.granted:
		t.Fatalf("did not wait: granted %v %v, %v", ok, c, w.err)
	case <-time.After(50 * time.Millisecond):
	}
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// left returns the ids of the contenders at path at the shared server, in order.
func left(t testing.TB, path string) []string {
	t.Helper()
	queues, err := look(soon(t), outside(t), []string{path})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, p := range queues[path] {
		ids = append(ids, p.ID)
	}
	return ids
}

func exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	if _, err := outside(t).Exec(soon(t), sql, args...); err != nil {
		t.Fatal(err)
	}
}

func ended(t *testing.T, what string, done <-chan struct{}, within time.Duration) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(within):
		t.Fatalf("%s: not within %v", what, within)
	}
}
