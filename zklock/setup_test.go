package zklock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/goleak"

	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

const (
	addr    = "127.0.0.1:2181"
	path    = "/locks/x"
	timeout = 6 * time.Second // of the sessions
	lease   = timeout - timeout/3
	beat    = timeout / 8
)

// A suite stops the shared server before goroutines are counted.
type suite struct{ *testing.M }

func (s suite) Run() int {
	defer func() {
		if shared.server != nil {
			shared.server.Stop()
		}
	}()
	return s.M.Run()
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(suite{m}) }

// bubble runs f with a server of its own in virtual time. The end of the bubble checks that no goroutine is left.
func bubble(t *testing.T, f func(t *testing.T, s *zktest.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		f(t, s)
	})
}

// A process is a client with its own session, and its view of the lock at path.
type process struct {
	*zklock.Client
	lock    *zklock.Lock
	session int64 // the first one
}

// start returns a process that is connected to s.
func start(t *testing.T, s *zktest.Server, opts ...zklock.Option) process {
	t.Helper()
	opts = append([]zklock.Option{zklock.WithSessionTimeout(timeout), zklock.WithDialContext(s.DialContext)}, opts...)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := zklock.Dial(ctx, addr, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	synctest.Wait() // the client has settled
	sessions := s.Sessions()
	return process{c, lockAt(t, c, path), sessions[len(sessions)-1].ID}
}

func lockAt(t *testing.T, c *zklock.Client, path string) *zklock.Lock {
	t.Helper()
	l, err := c.Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// acquire waits for the lock, at most an hour of virtual time.
func (p process) acquire(t *testing.T) *zklock.Node {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	n, err := p.lock.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A request is an acquisition under way.
type request struct {
	done chan struct{}
	node *zklock.Node // the result, valid when done is closed
	err  error
}

// queue starts to acquire the lock and returns once nothing moves any more without time passing.
func (p process) queue(ctx context.Context) *request {
	return submit(func() (*zklock.Node, error) { return p.lock.Acquire(ctx) })
}

func submit(f func() (*zklock.Node, error)) *request {
	r := &request{done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.node, r.err = f()
	}()
	synctest.Wait()
	return r
}

// await waits for the end of an acquisition, at most an hour of virtual time.
func (r *request) await(t *testing.T) {
	t.Helper()
	select {
	case <-r.done:
	case <-time.After(time.Hour):
		t.Fatal("waited for an hour")
	}
}

// waiting reports whether the acquisition goes on unless time passes.
func (r *request) waiting() bool {
	synctest.Wait()
	select {
	case <-r.done:
		return false
	default:
		return true
	}
}

// granted returns the node of an acquisition that has to have succeeded by now.
func (r *request) granted(t *testing.T) *zklock.Node {
	t.Helper()
	if r.waiting() {
		t.Fatal("not granted yet")
	}
	if r.err != nil {
		t.Fatal(r.err)
	}
	return r.node
}

// failed returns the error of an acquisition that has to have failed by now.
func (r *request) failed(t *testing.T) error {
	t.Helper()
	if r.waiting() {
		t.Fatal("still waiting")
	}
	if r.err == nil {
		t.Fatal("granted")
	}
	return r.err
}

// awaitLoss waits until n is lost, at most an hour of virtual time.
func awaitLoss(t *testing.T, n *zklock.Node) {
	t.Helper()
	select {
	case <-n.Lost():
	case <-time.After(time.Hour):
		t.Fatal("not lost within an hour")
	}
}

// raw returns a plain ZooKeeper connection, for what other programs do to a lock.
func raw(t *testing.T, s *zktest.Server) *zk.Conn {
	t.Helper()
	conn, events, err := zk.Connect([]string{addr, addr}, timeout, zk.WithDialer(s.DialTimeout), zk.WithLogger(silent{}), zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		for range events { // closed as the last act of the library
		}
	})
	synctest.Wait()
	return conn
}

type silent struct{}

func (silent) Printf(string, ...any) {}

// put creates nodes as another program would.
func put(t *testing.T, conn *zk.Conn, flags int32, paths ...string) {
	t.Helper()
	for _, p := range paths {
		if _, err := conn.Create(p, nil, flags, zk.WorldACL(zk.PermAll)); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			t.Fatal(err)
		}
	}
}

// heartbeat reports whether a frame comes by itself, or comes and goes with a connection.
func heartbeat(f *zktest.Frame) bool {
	switch f.Op {
	case "ping", "connect", "closeSession":
		return true
	case "sync":
		return f.Path == "/"
	case "multi":
		return f.First == "check"
	}
	return false
}

// traffic is what was asked of a server, pings and handshakes apart, and the syncs of heartbeats, which are counted.
type traffic struct {
	mu    sync.Mutex
	ops   []string
	beats int
}

func record(s *zktest.Server) *traffic {
	tr := new(traffic)
	s.Intercept(func(f *zktest.Frame) zktest.Action {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		switch {
		case f.Dir != zktest.Request || f.Op == "ping" || f.Op == "connect":
		case f.Op == "sync" && f.Path == "/":
			tr.beats++
		default:
			tr.ops = append(tr.ops, f.Op)
		}
		return zktest.Pass
	})
	return tr
}

// take returns what was asked since the last take.
func (tr *traffic) take() []string {
	synctest.Wait()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	ops := tr.ops
	tr.ops = nil
	return ops
}

func wantErr(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// wantEmpty fails unless the queue is empty now.
func wantEmpty(t *testing.T, s *zktest.Server) {
	t.Helper()
	synctest.Wait()
	if left := s.Children(path); len(left) > 0 {
		t.Errorf("nodes left in the queue: %q", left)
	}
}

// awaitWatch returns when the end of every node that is held would be heard of.
func awaitWatch() {
	<-time.After(timeout / 6) // virtual
	synctest.Wait()
}
