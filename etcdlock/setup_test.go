package etcdlock

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/tierlock/tierlock/internal/etcdserver"
	"github.com/tierlock/tierlock/internal/etcdserver/etcdservertest"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
)

// suite stops the shared server before goroutines are counted.
type suite struct{ *testing.M }

func (s suite) Run() int {
	defer func() {
		if shared.client != nil {
			shared.client.Close()
		}
		if shared.server != nil {
			shared.server.Stop()
		}
	}()
	return s.M.Run()
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(suite{m}) }

// ttl is that of processes in tests.
const ttl = 3 * time.Second

var shared struct {
	once   sync.Once
	server *etcdserver.Server
	client *clientv3.Client
	err    error
}

// server returns the etcd that tests share which do it no harm.
func server(t *testing.T) *etcdserver.Server {
	t.Helper()
	shared.once.Do(func() {
		shared.server, shared.err = etcdserver.Start(context.Background(), etcdserver.Config{NoSync: true})
		if shared.err == nil {
			shared.client, shared.err = clientv3.New(clientv3.Config{Endpoints: []string{shared.server.Addr()}, Logger: zap.NewNop()})
		}
	})
	etcdservertest.Check(t, shared.err)
	return shared.server
}

// start returns another process at the shared server.
func start(t *testing.T, opts ...Option) *process {
	t.Helper()
	return startAt(t, []string{server(t).Addr()}, opts...)
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

// A wait is an acquisition under way.
type wait struct {
	granted chan *queue.Contender
	err     error
	cancel  context.CancelFunc
}

// queue begins an acquisition and returns when its key is in the queue.
func queueAt(t *testing.T, l lock) *wait {
	t.Helper()
	prefix := l.path + "/"
	before := len(left(t, prefix))
	w := begin(t, l.Acquire)
	eventually(t, "a key in the queue", func() bool { return len(left(t, prefix)) > before })
	return w
}

// begin begins an acquisition, which ends at the latest with the test.
func begin(t *testing.T, acquire func(context.Context) (second.Grant, error)) *wait {
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

func mustRelease(t *testing.T, g second.Grant) {
	t.Helper()
	if err := g.Release(); err != nil {
		t.Fatal(err)
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

func ended(t *testing.T, what string, done <-chan struct{}, within time.Duration) {
	t.Helper()
	select {
	case <-done:
		return
	default:
	}
	select {
	case <-done:
	case <-time.After(within):
		t.Fatalf("%s: not within %v", what, within)
	}
}

// outside returns a client that looks from outside the library.
func outside(t *testing.T) *clientv3.Client {
	t.Helper()
	server(t)
	return shared.client
}

// left returns the keys below prefix at the shared server, in order.
func left(t *testing.T, prefix string) []string {
	t.Helper()
	return keysBelow(t, outside(t), prefix)
}

func writes(t *testing.T) int64 {
	t.Helper()
	answer, err := outside(t).Get(soon(t), "/")
	if err != nil {
		t.Fatal(err)
	}
	return answer.Header.Revision
}

func logged(w io.Writer) Option { return WithLogger(slog.New(slog.NewTextHandler(w, nil))) }
