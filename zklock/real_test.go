package zklock_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/wire"
	"github.com/tierlock/tierlock/internal/zkserver"
	"github.com/tierlock/tierlock/internal/zkserver/zkservertest"
	"github.com/tierlock/tierlock/zklock"
)

// What follows runs on a real server and in real time.

func realServer(t *testing.T) (*zkserver.Server, context.Context) {
	t.Helper()
	t.Parallel()
	s := zkservertest.Start(t, zkserver.Config{TickTime: 200 * time.Millisecond, NoSync: true})
	return s, patient(t)
}

// patient returns a context that ends a test that hangs, on any machine.
func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

var shared struct {
	once   sync.Once
	server *zkserver.Server
	err    error
}

// sharedServer is for tests that leave it as it is, each with a path of its own.
func sharedServer(t *testing.T) *zkserver.Server {
	t.Helper()
	t.Parallel()
	shared.once.Do(func() {
		shared.server, shared.err = zkserver.Start(context.Background(), zkserver.Config{NoSync: true, ContainerCheck: 100 * time.Millisecond})
	})
	zkservertest.Check(t, shared.err)
	return shared.server
}

// connect starts a process whose lease no busy machine uses up.
func connect(ctx context.Context, t *testing.T, servers string, opts ...zklock.Option) process {
	t.Helper()
	c, err := zklock.Dial(ctx, servers, append([]zklock.Option{zklock.WithSessionTimeout(30 * time.Second)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return process{Client: c, lock: lockAt(t, c, path)}
}

// enqueue starts to acquire the lock and returns once want contenders are in the queue.
func (p process) enqueue(ctx context.Context, t *testing.T, want int) *request {
	t.Helper()
	r := &request{done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.node, r.err = p.lock.Acquire(ctx)
	}()
	p.awaitQueue(ctx, t, want)
	return r
}

func (p process) awaitQueue(ctx context.Context, t *testing.T, want int) {
	t.Helper()
	for got := -1; got != want; {
		queue, err := p.lock.Contenders(ctx)
		if err != nil {
			t.Fatalf("waiting for %d contenders, have %d: %v", want, got, err)
		}
		got = len(queue)
	}
}

// result waits for the end of an acquisition.
func (r *request) result(ctx context.Context, t *testing.T) *zklock.Node {
	t.Helper()
	select {
	case <-r.done:
	case <-ctx.Done():
		t.Fatal("not granted in time")
	}
	if r.err != nil {
		t.Fatal(r.err)
	}
	return r.node
}

// A passport is what a session is taken over with. It is learned from the server's answer to the first handshake.
type passport struct {
	mu     sync.Mutex // guards the field below
	answer []byte
}

func (p *passport) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	p.mu.Lock()
	defer p.mu.Unlock()
	return &passported{conn, p, len(p.answer) > 0}, err
}

type passported struct {
	net.Conn
	passport *passport
	known    bool
}

func (c *passported) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if p := c.passport; !c.known {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.answer = append(p.answer, b[:n]...)
		c.known = len(p.answer) >= 40
	}
	return n, err
}

// expire ends the session for good: a second connection takes it over and closes it, both in one write, so that the
// client cannot come between.
func (p *passport) expire(t *testing.T, address string) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	d := wire.Decoder{Rest: wire.Body(p.answer)}
	answer := d.ConnectReply()
	var handshake, end wire.Encoder
	handshake.ConnectRequest(wire.ConnectRequest{
		Timeout: 2 * time.Second, Session: answer.Session, Password: answer.Password,
	})
	end.RequestHeader(wire.RequestHeader{Xid: 1, Op: wire.OpClose})
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := conn.Write(append(wire.Frame(handshake), wire.Frame(end)...)); err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, conn) // the server closes it when the session is over
}

func TestRealExpiryIsALossForTheHolderAndANewPlaceForTheWaiter(t *testing.T) {
	s, ctx := realServer(t)
	var holders, waiters passport
	a := connect(ctx, t, s.Addr(), zklock.WithDialContext(holders.dial))
	b := connect(ctx, t, s.Addr(), zklock.WithDialContext(waiters.dial))
	n := a.enqueue(ctx, t, 1).result(ctx, t)
	r := b.enqueue(ctx, t, 2)
	waiters.expire(t, s.Addr())
	a.awaitQueue(ctx, t, 2) // the waiter has a new node
	holders.expire(t, s.Addr())
	select {
	case <-n.Lost():
	case <-ctx.Done():
		t.Fatal("not lost")
	}
	if err := n.Release(); !errors.Is(err, zklock.ErrLost) {
		t.Errorf("Release: got %v, want ErrLost", err)
	}
	if err := r.result(ctx, t).Release(); err != nil {
		t.Error(err)
	}
	b.awaitQueue(ctx, t, 0)
}

func TestRealServerThatHangsDoesNotKeepTheClientFromAnother(t *testing.T) {
	s, ctx := realServer(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, nobody answers
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	begun := time.Now()
	for range 4 { // the library shuffles its servers
		connect(ctx, t, listener.Addr().String()+","+s.Addr())
	}
	// The library by itself would wait for 200 s at each mute one.
	if d := time.Since(begun); d > 100*time.Second {
		t.Errorf("four sessions after %v", d)
	}
}

func TestRealServerTellsWhatHappenedWhileTheConnectionWasDown(t *testing.T) {
	s, ctx := realServer(t)
	var mu sync.Mutex
	var conns []net.Conn
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		mu.Lock() // held while the connection is down
		defer mu.Unlock()
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		conns = append(conns, conn)
		return conn, err
	}
	a, b := connect(ctx, t, s.Addr(), zklock.WithDialContext(dial)), connect(ctx, t, s.Addr())
	put(t, b.Library(), 0, "/same", "/set", "/deleted", "/parent", "/barren")
	watch := func(path string, children bool) <-chan struct{} {
		t.Helper()
		fired, err := a.Watch(path, children)
		if err != nil {
			t.Fatal(err)
		}
		return fired
	}
	set, deleted, parent := watch("/set", false), watch("/deleted", false), watch("/parent", true)
	same, barren := watch("/same", false), watch("/barren", true)

	mu.Lock()
	for _, conn := range conns {
		conn.Close()
	}
	if _, err := b.Library().Set("/set", nil, -1); err != nil {
		t.Fatal(err)
	}
	if err := b.Library().Delete("/deleted", -1); err != nil {
		t.Fatal(err)
	}
	put(t, b.Library(), 0, "/parent/child")
	mu.Unlock()
	for what, fired := range map[string]<-chan struct{}{"write": set, "deletion": deleted, "child": parent} {
		select {
		case <-fired:
		case <-ctx.Done():
			t.Fatalf("not told of the %s", what)
		}
	}
	select {
	case <-same:
		t.Error("told of what did not happen")
	case <-barren:
		t.Error("told of what did not happen")
	default:
	}
	if _, err := b.Library().Set("/same", nil, -1); err != nil {
		t.Fatal(err)
	}
	select {
	case <-same:
	case <-ctx.Done():
		t.Error("the watch that did not fire is gone")
	}
}
