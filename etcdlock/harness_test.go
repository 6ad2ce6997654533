package etcdlock

import (
	"context"
	"net"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A process is what one process has of the library: a store, over a client of its own whose
// requests and connections can be interfered with.
type process struct {
	*store
	client *clientv3.Client
	wire   *wire
	calls  *calls
}

// startAt starts a process at the servers of these addresses that ends with the test.
func startAt(t *testing.T, addrs []string, opts ...Option) *process {
	t.Helper()
	p := launch(t, addrs, opts...)
	t.Cleanup(p.end)
	return p
}

// launch starts a process and waits for its session.
func launch(t testing.TB, addrs []string, opts ...Option) *process {
	t.Helper()
	o, _, err := newOptions(append([]Option{WithLeaseTTL(ttl)}, opts...))
	if err != nil {
		t.Fatal(err)
	}
	p := &process{wire: new(wire), calls: &calls{counts: make(map[string]int)}}
	p.client, err = clientv3.New(clientv3.Config{Endpoints: addrs, Logger: zap.NewNop(), DialOptions: []grpc.DialOption{
		grpc.WithContextDialer(p.wire.dial),
		grpc.WithChainUnaryInterceptor(p.calls.unary),
		grpc.WithChainStreamInterceptor(p.calls.stream),
	}})
	if err != nil {
		t.Fatal(err)
	}
	p.store = open(p.client, o)
	if _, err := p.await(soon(t), true); err != nil {
		p.end()
		t.Fatal(err)
	}
	return p
}

// end ends the process in good order.
func (p *process) end() {
	p.Close()
	p.wire.reset() // or the client waits for a wire that is cut
	p.client.Close()
}

func dial(t testing.TB, config clientv3.Config) *clientv3.Client {
	t.Helper()
	config.Logger = zap.NewNop()
	client, err := clientv3.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// keysBelow returns the keys below prefix, in order of their creation.
func keysBelow(t testing.TB, client *clientv3.Client, prefix string) (keys []string) {
	t.Helper()
	answer, err := client.Get(soon(t), prefix, clientv3.WithPrefix(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range answer.Kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys
}

// Calls are the requests of a process. A rule may decide what becomes of one.
type calls struct {
	mu     sync.Mutex // guards the fields below
	counts map[string]int
	rules  []rule
	hook   func() (lose bool)

	streams []*stream
	delays  map[string]func()
	refuse  func(*etcdserverpb.WatchResponse) // nil if none is to be refused
}

// refuseWatch has the next watch refused for a reason, and returns a channel that is closed
// when it is.
func (c *calls) refuseWatch(reason string) <-chan struct{} {
	refused := make(chan struct{})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuse = func(created *etcdserverpb.WatchResponse) {
		created.Canceled, created.CancelReason = true, reason
		close(refused)
	}
	return refused
}

// slow delays each message of the streams of a method, and tells when one has arrived.
func (c *calls) slow(method string, delay time.Duration, arrived chan<- time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.delays = map[string]func(){method: func() {
		time.Sleep(delay)
		select {
		case arrived <- time.Now():
		default:
		}
	}}
}

// messages has hook see each message to the process, but those that keep its session.
func (c *calls) messages(hook func() (lose bool)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hook = hook
}

// loses reports whether the hook loses a message of a method.
func (c *calls) loses(method string) bool {
	c.mu.Lock()
	hook := c.hook
	c.mu.Unlock()
	return hook != nil && !(strings.HasPrefix(method, "Lease") || method == "Status") && hook()
}

// A rule sees each request of a method. It returns true for what it has dealt with, by
// calling send or not.
type rule struct {
	method string
	handle func(ctx context.Context, req any, send func(context.Context) error) (handled bool, err error)
}

var errDropped = status.Error(codes.Unavailable, "dropped")

// nameOf tells the transaction that deletes a key from the others.
func nameOf(method string, req any) string {
	if txn, ok := req.(*etcdserverpb.TxnRequest); ok && len(txn.Success) == 1 && txn.Success[0].GetRequestDeleteRange() != nil {
		return "DeleteRange"
	}
	return path.Base(method)
}

func (c *calls) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	name := nameOf(method, req)
	c.mu.Lock()
	c.counts[name]++
	rules := c.rules
	c.mu.Unlock()
	send := func(ctx context.Context) error { return invoke(ctx, method, req, reply, cc, opts...) }
	for _, r := range rules {
		if r.method == name {
			if handled, err := r.handle(ctx, req, send); handled {
				return err
			}
		}
	}
	err := send(ctx)
	if c.loses(name) {
		return errDropped
	}
	return err
}

func (c *calls) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	c.mu.Lock()
	c.counts[path.Base(method)]++
	c.mu.Unlock()
	inner, err := open(ctx, desc, cc, method, opts...)
	s := &stream{ClientStream: inner, calls: c, method: path.Base(method)}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.streams = append(c.streams, s)
	return s, err
}

// silence has the streams that are open hear nothing any more, and nobody is told.
func (c *calls) silence() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.streams {
		s.silent = true
	}
}

// A stream is one whose messages can be lost.
type stream struct {
	grpc.ClientStream
	calls  *calls
	method string
	silent bool // guarded by calls.mu
}

func (s *stream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	s.calls.mu.Lock()
	silent, delay := s.silent, s.calls.delays[s.method]
	s.calls.mu.Unlock()
	if delay != nil {
		delay()
	}
	if r, ok := m.(*etcdserverpb.WatchResponse); err == nil && ok && r.Created {
		s.calls.mu.Lock()
		if refuse := s.calls.refuse; refuse != nil {
			refuse(r)
			s.calls.refuse = nil
		}
		s.calls.mu.Unlock()
	}
	if err == nil && silent {
		<-s.Context().Done()
		return s.Context().Err()
	}
	if err == nil && s.calls.loses(s.method) {
		return errDropped
	}
	return err
}

// count returns how many requests there were of a method, or streams; of all but those of
// the keeper if it is "".
func (c *calls) count(method string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for m, k := range c.counts {
		if m == method || method == "" && m != "LeaseKeepAlive" && m != "Status" {
			n += k
		}
	}
	return n
}

func (c *calls) on(method string, handle func(context.Context, any, func(context.Context) error) (bool, error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rules = append(c.rules, rule{method, handle})
}

// once has handle decide about the n-th request of a method from now, and returns a channel
// that is closed when that has come.
func (c *calls) once(method string, n int, handle func(ctx context.Context, send func(context.Context) error) error) <-chan struct{} {
	met := make(chan struct{})
	var mu sync.Mutex
	c.on(method, func(ctx context.Context, _ any, send func(context.Context) error) (bool, error) {
		mu.Lock()
		n--
		now := n == 0
		mu.Unlock()
		if !now {
			return false, nil
		}
		defer close(met)
		return true, handle(ctx, send)
	})
	return met
}

// dropReply loses the answer to the n-th request of a method from now, which is executed.
func (c *calls) dropReply(method string, n int) <-chan struct{} {
	return c.once(method, n, func(ctx context.Context, send func(context.Context) error) error {
		if err := send(ctx); err != nil {
			return err
		}
		return errDropped
	})
}

// delay holds the n-th request of a method back, which is given up as unanswered, until
// deliver is called.
func (c *calls) delay(t *testing.T, method string, n int) (met <-chan struct{}, deliver func()) {
	var late func(context.Context) error
	met = c.once(method, n, func(_ context.Context, send func(context.Context) error) error {
		late = send
		return errDropped
	})
	return met, func() {
		t.Helper()
		<-met
		if err := late(soon(t)); err != nil {
			t.Fatal(err)
		}
	}
}

// A wire carries the connections of one client.
type wire struct {
	mu   sync.Mutex // guards the fields below
	cut  bool
	ends []net.Conn
	wait chan struct{} // closed when it is healed
}

func (w *wire) dial(ctx context.Context, addr string) (net.Conn, error) {
	if err := w.open(ctx); err != nil {
		return nil, err
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	c := &cable{Conn: conn, wire: w}
	c.ctx, c.end = context.WithCancel(context.Background())
	w.ends = append(w.ends, c)
	return c, nil
}

// open waits until the wire is whole.
func (w *wire) open(ctx context.Context) error {
	w.mu.Lock()
	cut, wait := w.cut, w.wait
	w.mu.Unlock()
	if !cut {
		return nil
	}
	select {
	case <-wait:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// sever stops everything that is sent in either direction; nobody is told. heal breaks the
// old connections.
func (w *wire) sever() (heal func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut, w.wait = true, make(chan struct{})
	return sync.OnceFunc(func() {
		w.reset()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.cut = false
		close(w.wait)
	})
}

// reset breaks all connections.
func (w *wire) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, conn := range w.ends {
		conn.Close()
	}
	w.ends = nil
}

// A cable is a connection that is silent while its wire is cut.
type cable struct {
	net.Conn
	wire *wire
	ctx  context.Context // ends when it is closed
	end  context.CancelFunc
}

func (c *cable) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if cut := c.wire.open(c.ctx); cut != nil {
		return 0, cut
	}
	return n, err
}

func (c *cable) Write(b []byte) (int, error) {
	if cut := c.wire.open(c.ctx); cut != nil {
		return 0, cut
	}
	return c.Conn.Write(b)
}

func (c *cable) Close() error {
	c.end()
	return c.Conn.Close()
}

// kill ends the process without a goodbye: what it has at etcd stays until its lease ends.
func (p *process) kill() {
	p.wire.sever()
	p.calls.on("LeaseRevoke", func(context.Context, any, func(context.Context) error) (bool, error) {
		return true, errDropped
	})
	p.Close()
}

// remove is what an operator does: the key goes.
func removeKey(t *testing.T, key string) {
	t.Helper()
	if _, err := outside(t).Delete(soon(t), key); err != nil {
		t.Fatal(err)
	}
}
