package zknode_test

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/goleak"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/locktest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/waittest"
	"github.com/tierlock/tierlock/internal/test/zkconn"
	"github.com/tierlock/tierlock/internal/zknode"
	"github.com/tierlock/tierlock/zklock/zktest"
)

const (
	addr    = "127.0.0.1:2181"
	path    = "/locks/x"
	timeout = 6 * time.Second // the session timeout
	lease   = timeout - timeout/3
	beat    = timeout / 8
)

func TestMain(m *testing.M) {
	second.Defaults.Logger = slog.New(slog.DiscardHandler) // the tests cause losses and outages on purpose
	goleak.VerifyTestMain(m)
}

var bubble = locktest.Bubble

// The function each runs f once for each case. Each run has its own server.
func each[C any](t *testing.T, cases map[string]C, f func(t *testing.T, s *zktest.Server, c C)) {
	t.Helper()
	need.Each(t, cases, func(t *testing.T, c C) {
		bubble(t, func(t *testing.T, s *zktest.Server) { f(t, s, c) })
	})
}

// is(op, dir) returns a filter. The filter matches the frames of an operation in one direction.
func is(op string, dir zktest.Direction) func(*zktest.Frame) bool {
	return func(f *zktest.Frame) bool { return f.Op == op && f.Dir == dir }
}

// pushed matches the frames that are events.
func pushed(f *zktest.Frame) bool { return f.Op == "event" }

// The function meet applies an action to each frame that the filter matches. All other frames pass.
func meet(s *zktest.Server, such func(*zktest.Frame) bool, fate zktest.Action) {
	s.Intercept(func(f *zktest.Frame) zktest.Action {
		if such(f) {
			return fate
		}
		return zktest.Pass
	})
}

// meetOnce applies an action to the first frame that the filter matches. All other frames pass.
func meetOnce(s *zktest.Server, such func(*zktest.Frame) bool, fate zktest.Action) {
	var met atomic.Bool
	meet(s, func(f *zktest.Frame) bool { return such(f) && !met.Swap(true) }, fate)
}

// kinds lists the options for both kinds of nodes: one znode, or a pair of znodes.
var kinds = map[string][]zknode.Option{"plain": nil, "bridged": {zknode.WithKazoo()}}

// A process is a client with its own session, and the client's lock at path.
type process struct {
	*zknode.Client
	lock    *zknode.Lock
	session int64 // the ID of its first session
}

// start starts a process, waits until it is connected to s, and returns it.
func start(t *testing.T, s *zktest.Server, opts ...zknode.Option) process {
	t.Helper()
	opts = append([]zknode.Option{zknode.WithSessionTimeout(timeout), zknode.WithDialContext(s.DialContext)}, opts...)
	c := need.Get(zknode.Dial(within(t, time.Minute), addr, opts...))(t)
	t.Cleanup(func() { c.Close() })
	synctest.Wait() // until all that Dial has begun is done
	sessions := s.Sessions()
	return process{c, lockAt(t, c, path), sessions[len(sessions)-1].ID}
}

func lockAt(t *testing.T, c *zknode.Client, path string, opts ...zknode.LockOption) *zknode.Lock {
	t.Helper()
	return need.Get(c.Lock(path, opts...))(t)
}

// The function acquire acquires a lock. It fails the test after an hour of virtual time.
func acquire(t *testing.T, l *zknode.Lock) *zknode.Node {
	t.Helper()
	return need.Get(l.Acquire(within(t, time.Hour)))(t)
}

func (p process) acquire(t *testing.T) *zknode.Node {
	t.Helper()
	return acquire(t, p.lock)
}

func (p process) acquireAt(t *testing.T, path string) *zknode.Node {
	t.Helper()
	return acquire(t, lockAt(t, p.Client, path))
}

// A request is an acquisition that runs in a goroutine.
type request struct {
	done chan struct{}
	node *zknode.Node // the result; node and err are valid when done is closed
	err  error
}

// The method queue starts to acquire the lock in a new goroutine.
func (p process) queue(ctx context.Context) *request {
	return submit(func() (*zknode.Node, error) { return p.lock.Acquire(ctx) })
}

func submit(f func() (*zknode.Node, error)) *request {
	r := &request{done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.node, r.err = f()
	}()
	synctest.Wait()
	return r
}

// The method await waits until the acquisition has ended, in virtual time.
func (r *request) await(t *testing.T) {
	t.Helper()
	waittest.Ended(t, "the end of the acquisition", r.done)
}

// The method waiting waits until the bubble is idle, and reports whether the acquisition has not ended by then.
func (r *request) waiting() bool {
	synctest.Wait()
	return !closed(r.done)
}

// The method granted returns the node of an acquisition. It fails the test unless the acquisition has succeeded by now.
func (r *request) granted(t *testing.T) *zknode.Node {
	t.Helper()
	need.Must(t, "not granted yet", !r.waiting())
	need.OK(t, r.err)
	return r.node
}

// The method failed returns the error of an acquisition. It fails the test unless the acquisition has failed by now.
func (r *request) failed(t *testing.T) error {
	t.Helper()
	need.Must(t, "still waiting", !r.waiting())
	need.Must(t, "granted", r.err != nil)
	return r.err
}

// awaitLoss waits until the node n is lost, in virtual time.
func awaitLoss(t *testing.T, n *zknode.Node) {
	t.Helper()
	waittest.Ended(t, "the loss", n.Lost())
}

// The function raw returns a connection of the client library. With it, a test acts as another program.
func raw(t *testing.T, s *zktest.Server) *zk.Conn {
	t.Helper()
	conn := zkconn.Start(t, []string{addr, addr}, timeout, s.DialTimeout)
	synctest.Wait()
	return conn
}

// The function content returns the data of a node.
func content(s *zktest.Server, node string) string {
	data, _, _ := s.Get(node)
	return string(data)
}

// put creates nodes like another program.
var put = zkconn.Put

// create creates a node like another program, and returns the node's path.
func create(t *testing.T, conn *zk.Conn, node, data string, flags int32, acl []zk.ACL) string {
	t.Helper()
	return need.Get(conn.Create(node, []byte(data), flags, acl))(t)
}

// protect sets the ACL of a node: all clients have only the permissions perms.
func protect(t *testing.T, conn *zk.Conn, node string, perms int32) {
	t.Helper()
	need.Get(conn.SetACL(node, zk.WorldACL(perms), -1))(t)
}

// The function remove deletes a node like another program.
func remove(t *testing.T, conn *zk.Conn, node string) {
	t.Helper()
	wantErr(t, "Delete", conn.Delete(node, -1), nil)
}

// heartbeat reports whether a frame is sent periodically, or belongs to the beginning or the end of a connection.
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

// traffic records the requests to a server. It leaves out pings and handshakes. It only counts the syncs of heartbeats.
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

// The method take returns the requests since the last call of take.
func (tr *traffic) take() []string {
	synctest.Wait()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	ops := tr.ops
	tr.ops = nil
	return ops
}

// wantWithin fails the test if more time than most has passed since begun.
func wantWithin(t *testing.T, most time.Duration, what string, begun time.Time) {
	t.Helper()
	need.AtMost(t, what+" took", time.Since(begun), most)
}

var within, closed, wantErr, wantMention = need.Within, need.Closed[struct{}], need.WantErr, need.WantMention

// wantEmpty fails the test unless the queue is empty.
func wantEmpty(t *testing.T, s *zktest.Server) {
	t.Helper()
	synctest.Wait()
	need.Empty(t, "nodes left in the queue", s.Children(path))
}

// awaitWatch waits until each held node is watched.
func awaitWatch() {
	<-time.After(timeout / 6) // in virtual time
	synctest.Wait()
}
