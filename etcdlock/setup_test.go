package etcdlock

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/etcdserver"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/waittest"
	"github.com/tierlock/tierlock/tier"
)

var (
	soon, wantErr, eventually, ended = waittest.Soon, waittest.Err, waittest.Eventually, waittest.Ended
	lockPath, acquire, begin         = waittest.Path, waittest.Acquire, waittest.Begin
	mustHold                         = waittest.Hold
)

type (
	lock = waittest.Lock
	wait = waittest.Wait
)

// shared is the etcd server that all tests share, with a client that belongs to no process.
var shared = waittest.Shared[site]{Start: func() (s site, stop func(), err error) {
	if s.server, err = etcdserver.Start(context.Background(), etcdserver.Config{NoSync: true}); err != nil {
		return s, nil, err
	}
	s.client, err = clientv3.New(clientv3.Config{Endpoints: []string{s.server.Addr()}, Logger: zap.NewNop()})
	return s, func() {
		s.client.Close()
		s.server.Stop()
	}, err
}}

type site struct {
	server *etcdserver.Server
	client *clientv3.Client
}

func TestMain(m *testing.M) { shared.Main(m) }

func server(t testing.TB) *etcdserver.Server { return shared.Get(t).server }
func outside(t testing.TB) *clientv3.Client  { return shared.Get(t).client }

// left returns the keys below the path of the test's lock, in the order of their creation.
func left(t *testing.T) (keys []string) {
	t.Helper()
	answer := need.Get(outside(t).Get(soon(t), lockPath(t)+"/", clientv3.WithPrefix(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend)))(t)
	for _, kv := range answer.Kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys
}

// stored returns a key from etcd, and the description of its owner.
func stored(t *testing.T, key string) (*mvccpb.KeyValue, owner) {
	t.Helper()
	answer, err := outside(t).Get(soon(t), key)
	need.Must(t, fmt.Sprintf("%s: %v, %v", key, answer, err), err == nil && len(answer.Kvs) == 1)
	var o owner
	need.OK(t, json.Unmarshal(answer.Kvs[0].Value, &o))
	return answer.Kvs[0], o
}

// does executes an operation in etcd, like another program.
func does(t *testing.T, op clientv3.Op) {
	t.Helper()
	need.Get(outside(t).Do(soon(t), op))(t)
}

// writes returns the revision of the shared server, which grows by one with each write.
func writes(t *testing.T) int64 {
	t.Helper()
	answer := need.Get(outside(t).Get(soon(t), "/"))(t)
	return answer.Header.Revision
}

// A process stands for a process that uses the library. It has a tier with a client of its own, and a test can disturb the requests of that
// client.
type process struct {
	*queue.Tier
	store  *store
	client *clientv3.Client
	calls  *calls

	mu      sync.Mutex // guards the field below
	records []queue.Record
}

// brief is the TTL of tests that wait for the end of a lease, a renewal, or a periodic read. In all other tests, the TTL is long, and none
// of these happens even on a busy machine.
const brief = 3 * time.Second

// start returns another process at the shared server. It ends with the test.
func start(t *testing.T, opts ...tier.RegistryOption) *process {
	t.Helper()
	return startAt(t, []string{server(t).Addr()}, opts...)
}

func startAt(t *testing.T, addrs []string, opts ...tier.RegistryOption) *process {
	t.Helper()
	p := launch(t, addrs, opts...)
	t.Cleanup(p.end)
	return p
}

// launch starts a process and waits for its session.
func launch(t testing.TB, addrs []string, opts ...tier.RegistryOption) *process {
	t.Helper()
	p := prepare(t, addrs, "")
	p.open(t, append([]tier.RegistryOption{tier.WithLeaseTTL(time.Minute)}, opts...)...)
	eventually(t, "a session", func() bool { return p.count(queue.Open, queue.Done) == 1 })
	return p
}

// prepare returns a process that has a client but no tier yet. If password is not "", the client uses it.
func prepare(t testing.TB, addrs []string, password string) *process {
	t.Helper()
	p := &process{calls: &calls{counts: make(map[string]int), rules: make(map[string][]rule)}}
	config := clientv3.Config{Endpoints: addrs, Logger: zap.NewNop(), DialOptions: []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(p.calls.unary), grpc.WithChainStreamInterceptor(p.calls.stream),
	}}
	if password != "" {
		config.Username, config.Password = "root", password
	}
	p.client = need.Get(clientv3.New(config))(t)
	return p
}

func (p *process) open(t testing.TB, opts ...tier.RegistryOption) {
	t.Helper()
	o, _, err := newOptions(opts)
	need.OK(t, err)
	o.record = func(r queue.Record) {
		if r.Sent {
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.records = append(p.records, r)
	}
	p.store = open(p.client, o)
	p.Tier = p.store.tier
}

// count returns how many commands of one kind had the given outcome. Notifications do not count.
func (p *process) count(op queue.Op, outcome queue.Outcome) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.records {
		if r.Command.Op == op && r.Answer.Outcome == outcome {
			n++
		}
	}
	return n
}

// lease returns the lease of the present session.
func (p *process) lease() clientv3.LeaseID {
	p.store.names.mu.Lock()
	defer p.store.names.mu.Unlock()
	return leaseOf(p.store.names.session)
}

// end closes the process and its client.
func (p *process) end() {
	p.Close()
	p.client.Close()
}

func (p *process) at(t *testing.T, path string, mode second.Mode) lock {
	t.Helper()
	return waittest.At(t, p, path, second.Options{Mode: mode})
}

// These methods return handles for the test's lock.
func (p *process) mutex(t *testing.T) lock  { return p.at(t, lockPath(t), second.Exclusive) }
func (p *process) writer(t *testing.T) lock { return p.at(t, lockPath(t), second.Writing) }
func (p *process) reader(t *testing.T) lock { return p.at(t, lockPath(t), second.Reading) }

func requeue(t *testing.T, l lock, old second.Grant) *queue.Contender {
	t.Helper()
	g, err := l.Requeue(soon(t), old)
	return waittest.Granted(t, g, err)
}

func try(t *testing.T, l lock) *queue.Contender {
	t.Helper()
	g, err := l.TryAcquire(soon(t))
	return waittest.Granted(t, g, err)
}

// locked checks that TryAcquire returns ErrLocked.
func locked(t *testing.T, l lock) {
	t.Helper()
	wantErr(t, need.ErrOf(l.TryAcquire(soon(t))), second.ErrLocked)
}

func release(t *testing.T, grants ...*queue.Contender) {
	t.Helper()
	for _, g := range grants {
		waittest.Release(t, g)
	}
}

// queues starts an acquisition and returns when its key is in the queue.
func queues(t *testing.T, l lock) *wait {
	t.Helper()
	return waittest.Queue(t, l, func() int { return len(left(t)) })
}

// after makes the given holders release the lock, and returns the grant that the waiter then gets.
func after(t *testing.T, w *wait, holders ...*queue.Contender) *queue.Contender {
	t.Helper()
	release(t, holders...)
	return w.Must(t)
}
