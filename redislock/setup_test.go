package redislock

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/redisserver"
	"github.com/tierlock/tierlock/internal/redisserver/redisservertest"
	"github.com/tierlock/tierlock/internal/second"
)

// suite stops the shared server before goroutines are counted.
type suite struct{ *testing.M }

func (s suite) Run() int {
	redis.SetLogger(silence{}) // about connections that tests break
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

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

func TestMain(m *testing.M) { goleak.VerifyTestMain(suite{m}) }

// ttl is that of processes in tests.
const ttl = 3 * time.Second

var shared struct {
	once   sync.Once
	server *redisserver.Server
	client *redis.Client
	err    error
}

// server returns the Redis that tests share which do it no harm.
func server(t *testing.T) *redisserver.Server {
	t.Helper()
	shared.once.Do(func() {
		shared.server, shared.err = redisserver.Start(context.Background(), redisserver.Config{NoSync: true})
		if shared.err == nil {
			shared.err = remember(shared.server.Addr())
			shared.client = redis.NewClient(&redis.Options{Addr: shared.server.Addr()})
		}
	})
	redisservertest.Check(t, shared.err)
	return shared.server
}

// remember has a server be one that has been the primary for long.
func remember(addr string) error { return record(addr, time.Time{}) }

// record has a server be one that became the primary then, the zero time for long ago.
func record(addr string, since time.Time) error {
	info, err := redisserver.Ask(addr, "INFO", "replication")
	if err == nil {
		_, err = redisserver.Ask(addr, "SET", recordOf(info[0]), strconv.FormatInt(max(since.UnixMicro(), 0), 10))
	}
	return err
}

func recordOf(info string) string { return records + field(info, "master_replid") }

// renew has a server be another primary than before, which was promoted, as far as processes can tell.
func renew(t *testing.T, s *redisserver.Server) {
	t.Helper()
	for _, role := range [][]string{{"127.0.0.1", "1"}, {"NO", "ONE"}} {
		if _, err := redisserver.Ask(s.Addr(), append([]string{"REPLICAOF"}, role...)...); err != nil {
			t.Fatal(err)
		}
	}
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

func (p *process) at(t *testing.T, path string) lock { return p.with(t, path, second.Options{}) }

func (p *process) with(t *testing.T, path string, o second.Options) lock {
	t.Helper()
	l, err := p.tier.Claim(path, o)
	if err != nil {
		t.Fatal(err)
	}
	return lock{l, path}
}

// does sends a command once, which has to be executed.
func (p *process) does(t *testing.T, c queue.Command) queue.Answer {
	t.Helper()
	a := p.Do(soon(t), c)
	if a.Outcome != queue.Done {
		t.Fatalf("%s: %+v", c.Op, a)
	}
	return a
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

// queue begins an acquisition and returns when it is in the queue.
func queueAt(t *testing.T, l lock) *wait {
	t.Helper()
	before := len(left(t, l.path))
	w := begin(t, l.Acquire)
	eventually(t, "a contender in the queue", func() bool { return len(left(t, l.path)) > before })
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

func eventually(t *testing.T, what string, holds func() bool) {
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
func outside(t *testing.T) *redis.Client {
	t.Helper()
	server(t)
	return shared.client
}

// left returns the queue for a lock at the shared server, in order.
func left(t *testing.T, path string) []string {
	t.Helper()
	queue, err := outside(t).ZRange(soon(t), keysOf(path)[1], 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	return queue
}

// anew is a contender that is yet to enter.
func (p *process) anew(path string) queue.Ref { return queue.Ref{Path: path, ID: p.Name("")} }

// enters is how a contender stands that enters.
func (p *process) enters(t *testing.T, path string) queue.View {
	t.Helper()
	return p.does(t, queue.Command{Op: queue.Enter, Ref: p.anew(path)}).View
}
