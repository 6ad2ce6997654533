package etcdlock

import (
	"context"
	"net"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tierlock/tierlock/internal/queue"
)

// A process is what one process has of the library: a tier, over a client of its own whose requests and connections can be
// interfered with.
type process struct {
	*queue.Tier
	store  *store
	client *clientv3.Client
	wire   *wire
	calls  *calls

	records records
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
	o.record = p.records.add
	p.store = open(p.client, o)
	p.Tier = p.store.tier
	eventually(t, "a session", func() bool { return p.records.count(queue.Open, queue.Done) == 1 })
	return p
}

// lease is that of the present session.
func (p *process) lease() clientv3.LeaseID {
	p.store.names.mu.Lock()
	defer p.store.names.mu.Unlock()
	return leaseOf(p.store.names.session)
}

// Records are the answers that a process had.
type records struct {
	mu  sync.Mutex // guards the field below
	all []queue.Record
}

func (r *records) add(one queue.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, one)
}

// count returns how many commands ended with an outcome.
func (r *records) count(op queue.Op, outcome queue.Outcome) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.all {
		if one.Command.Op == op && one.Answer.Outcome == outcome {
			n++
		}
	}
	return n
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

var errDropped = status.Error(codes.Unavailable, "dropped")

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
