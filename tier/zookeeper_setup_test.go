package tier_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/tierlock/tierlock/internal/zkserver"
	"github.com/tierlock/tierlock/internal/zkserver/zkservertest"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

const tick = 200 * time.Millisecond

var shared struct {
	once   sync.Once
	server *zkserver.Server
	err    error
}

// realServer returns the address of a real ZooKeeper that all tests share.
func realServer(t *testing.T) string {
	t.Helper()
	shared.once.Do(func() {
		shared.server, shared.err = zkserver.Start(context.Background(),
			zkserver.Config{TickTime: tick, NoSync: true, ContainerCheck: 100 * time.Millisecond})
	})
	zkservertest.Check(t, shared.err)
	return shared.server.Addr()
}

// zkBubble runs f in virtual time, with a ZooKeeper of its own. The bubble makes sure
// that no goroutine is left.
func zkBubble(t *testing.T, f func(t *testing.T, srv *zktest.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t, zktest.Config{MinSessionTimeout: time.Second, ContainerCheck: time.Second})
		f(t, srv)
	})
}

// zkProcess returns the locks of one more process, in strict order.
func zkProcess(t *testing.T, srv *zktest.Server, opts ...zklock.Option) *tier.Registry {
	t.Helper()
	return zkDial(t, "127.0.0.1:2181", append([]zklock.Option{
		zklock.WithDialContext(srv.DialContext), zklock.WithSessionTimeout(sessionTimeout),
	}, opts...)...)
}

func zkDial(t *testing.T, addr string, opts ...zklock.Option) *tier.Registry {
	t.Helper()
	client, err := zklock.Dial(soon(t), addr, opts...)
	if err != nil {
		t.Fatal(err)
	}
	locks, err := tier.New(client.Tier(), tier.WithHandOff(0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { locks.Close() })
	return locks
}

// outsider returns a connection that knows nothing of locks.
func outsider(t *testing.T, addr string, dialer zk.Dialer) *zk.Conn {
	t.Helper()
	// The address is listed twice because the library pauses after each round of its list.
	conn, events, err := zk.Connect([]string{addr, addr}, sessionTimeout,
		zk.WithDialer(dialer), zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		for range events { // closed as the last act of the library
		}
	})
	return conn
}

// A zkMeter counts the requests that a server gets, except handshakes and what keeps the lease.
type zkMeter struct {
	mu  sync.Mutex
	ops []zktest.Op
}

func (m *zkMeter) note(f *zktest.Frame) zktest.Action {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f.Stage == zktest.Request && f.Op != zktest.OpConnect && !heartbeat(f) {
		m.ops = append(m.ops, f.Op)
	}
	return zktest.Pass
}

func heartbeat(f *zktest.Frame) bool {
	return f.Op == zktest.OpPing || f.Op == zktest.OpSync || f.First == zktest.OpCheck
}

// take returns the requests since the last call.
func (m *zkMeter) take() []zktest.Op {
	m.mu.Lock()
	defer m.mu.Unlock()
	ops := m.ops
	m.ops = nil
	return ops
}

func zkWrites(ops []zktest.Op) (n int) {
	for _, op := range ops {
		if op == zktest.OpCreate || op == zktest.OpDelete || op == zktest.OpMulti {
			n++
		}
	}
	return n
}

// zkMetered runs f in a bubble with a server, its meter, and a function that starts processes.
func zkMetered(t *testing.T, f func(t *testing.T, s *zktest.Server, m *zkMeter, process func(...tier.Option) *tier.Mutex)) {
	t.Helper()
	zkMeteredFrom(t, 0, f)
}

// zkMeteredFrom is zkMetered with a server that is a latency away.
func zkMeteredFrom(t *testing.T, latency time.Duration,
	f func(t *testing.T, s *zktest.Server, m *zkMeter, process func(...tier.Option) *tier.Mutex),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t, zktest.Config{Latency: latency})
		m := &zkMeter{}
		s.Intercept(m.note)
		var open []*tier.Registry
		defer func() {
			for _, locks := range open {
				locks.Close()
			}
		}()
		f(t, s, m, func(opts ...tier.Option) *tier.Mutex {
			client, err := zklock.Dial(t.Context(), "127.0.0.1", zklock.WithDialContext(s.DialContext))
			if err != nil {
				t.Fatal(err)
			}
			locks, err := tier.New(client.Tier(), opts...)
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, locks)
			return locks.Mutex("/locks/a")
		})
	})
}

// zkRWMetered is zkMetered with reader/writer locks of one path.
func zkRWMetered(t *testing.T, f func(t *testing.T, s *zktest.Server, m *zkMeter, process func(...tier.Option) *tier.RWMutex)) {
	t.Helper()
	zkMetered(t, func(t *testing.T, s *zktest.Server, m *zkMeter, process func(...tier.Option) *tier.Mutex) {
		f(t, s, m, func(opts ...tier.Option) *tier.RWMutex { return tier.RWSibling(process(opts...)) })
	})
}

// zkAnswerLate delays the answers to one kind of request: what was asked has happened on
// the server, and the client does not know.
func zkAnswerLate(s *zktest.Server, op zktest.Op, d time.Duration) {
	s.Intercept(func(f *zktest.Frame) zktest.Action {
		if f.Stage == zktest.Reply && f.Op == op {
			return zktest.Delay(d)
		}
		return zktest.Pass
	})
}
