package tier_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bubble runs f in virtual time, with a store of its own. The bubble makes sure that no goroutine is left.
func bubble(t *testing.T, f func(t *testing.T, s *memory.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, memory.NewServer()) })
}

const sessionTimeout = 9 * time.Second

// dial returns the locks of one more process that is connected, and what can be done to it.
func dial(t *testing.T, s *memory.Server, label string, opts ...tier.Option) (*tier.Registry, *memory.Process) {
	t.Helper()
	p := s.Dial(label, sessionTimeout, nil)
	synctest.Wait() // until it is connected
	locks, err := tier.New(p, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { locks.Close() })
	return locks, p
}

// cut cuts a process off, and returns when that knows. Its lease still runs.
func cut(p *memory.Process) (heal func()) {
	heal = p.Cut()
	p.Renew()
	time.Sleep(p.Patience())
	synctest.Wait()
	return heal
}

// answerLate delays the answers to one kind of command: the server has executed it, and the process does not know.
func answerLate(s *memory.Server, op queue.Op, d time.Duration) {
	s.Script(func(_ string, c queue.Command) (f memory.Fault) {
		if c.Op == op {
			f.After = d
		}
		return f
	})
}

// atMessage calls f at the n-th message from 0: a command of any process, or an answer or news to one of those.
func atMessage(s *memory.Server, n int, f func(), to ...*memory.Process) {
	var messages atomic.Int64
	note := func() (lose bool) {
		if messages.Add(1) == int64(n)+1 {
			f()
		}
		return false
	}
	s.Script(func(string, queue.Command) memory.Fault {
		note()
		return memory.Fault{}
	})
	for _, p := range to {
		p.Deliver(func(queue.Record) bool { return note() })
	}
}

// process returns the locks of one more process, in strict order.
func process(t *testing.T, s *memory.Server) *tier.Registry {
	t.Helper()
	return named(t, s, "")
}

// named returns the locks of one more process, in strict order, which says that it is called so.
func named(t *testing.T, s *memory.Server, label string) *tier.Registry {
	t.Helper()
	locks, _ := dial(t, s, label, tier.WithHandOff(0))
	return locks
}

// wantOneEach checks that no process has several contenders for /locks/a. Each has another label.
func wantOneEach(t *testing.T, s *memory.Server) {
	t.Helper()
	there := make(map[string]bool)
	for _, c := range s.Queue("/locks/a") {
		if there[c.Label] {
			t.Errorf("process %s has several contenders, want 1", c.Label)
		}
		there[c.Label] = true
	}
}

// observed returns the locks of one more process, which is observed.
func observed(t *testing.T, s *memory.Server, o tier.Observer, opts ...tier.Option) *tier.Registry {
	t.Helper()
	locks, _ := dial(t, s, "", append([]tier.Option{tier.WithObserver(o)}, opts...)...)
	return locks
}

// A meter notes the commands that a server gets, except those that keep sessions.
type meter struct {
	mu  sync.Mutex // guards the field below
	ops []queue.Op
}

func (m *meter) note(_ string, c queue.Command) memory.Fault {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.Op != queue.Open && c.Op != queue.Beat && c.Op != queue.Goodbye {
		m.ops = append(m.ops, c.Op)
	}
	return memory.Fault{}
}

// take returns the commands since the last call.
func (m *meter) take() []queue.Op {
	m.mu.Lock()
	defer m.mu.Unlock()
	ops := m.ops
	m.ops = nil
	return ops
}

// writes counts the commands that change something.
func writes(ops []queue.Op) (n int) {
	for _, op := range ops {
		if op == queue.Enter || op == queue.Try || op == queue.Share || op == queue.Leave || op == queue.Ask {
			n++
		}
	}
	return n
}

// metered runs f in a bubble with a server, its meter, and a function that starts processes.
func metered(t *testing.T, f func(t *testing.T, s *memory.Server, m *meter, process func(...tier.Option) *tier.Mutex)) {
	t.Helper()
	bubble(t, func(t *testing.T, s *memory.Server) {
		m := &meter{}
		s.Script(m.note)
		f(t, s, m, func(opts ...tier.Option) *tier.Mutex {
			locks, _ := dial(t, s, "", opts...)
			return locks.Mutex("/locks/a")
		})
	})
}

// rwMetered is metered with reader/writer locks of one path.
func rwMetered(t *testing.T, f func(t *testing.T, s *memory.Server, m *meter, process func(...tier.Option) *tier.RWMutex)) {
	t.Helper()
	metered(t, func(t *testing.T, s *memory.Server, m *meter, process func(...tier.Option) *tier.Mutex) {
		f(t, s, m, func(opts ...tier.Option) *tier.RWMutex { return tier.RWSibling(process(opts...)) })
	})
}

// soon returns a context that ends a test that hangs.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 5*time.Minute, fmt.Errorf("%s hangs", t.Name()))
	t.Cleanup(cancel)
	return ctx
}

// acquire takes a lock that is free, or becomes free in time.
func acquire(t *testing.T, mu *tier.Mutex) *tier.Hold {
	t.Helper()
	hold, err := mu.Acquire(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	return hold
}

func release(t *testing.T, hold *tier.Hold) {
	t.Helper()
	if err := hold.Release(); err != nil {
		t.Errorf("Release: %v", err)
	}
}

// An acquisition is a call of Acquire in a goroutine of its own.
type acquisition struct {
	done chan struct{} // closed when the call has returned
	hold *tier.Hold
	err  error
}

func start(ctx context.Context, mu *tier.Mutex) *acquisition {
	a := &acquisition{done: make(chan struct{})}
	go func() {
		defer close(a.done)
		a.hold, a.err = mu.Acquire(ctx)
	}()
	return a
}

// blocked returns when nothing in the bubble moves any more; a must still wait then.
func (a *acquisition) blocked(t *testing.T) *acquisition {
	t.Helper()
	synctest.Wait()
	if !a.pending() {
		t.Fatalf("Acquire: got %v, %v; want it to wait", a.hold, a.err)
	}
	return a
}

func (a *acquisition) pending() bool {
	select {
	case <-a.done:
		return false
	default:
		return true
	}
}

// granted waits for the lock.
func (a *acquisition) granted(t *testing.T) *tier.Hold {
	t.Helper()
	if <-a.done; a.err != nil {
		t.Fatal(a.err)
	}
	return a.hold
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
	locks, err := tier.New(second.TierOf(client), tier.WithHandOff(0))
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
	ops []string
}

func (m *zkMeter) note(f *zktest.Frame) zktest.Action {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f.Dir == zktest.Request && f.Op != "connect" && !heartbeat(f) {
		m.ops = append(m.ops, f.Op)
	}
	return zktest.Pass
}

func heartbeat(f *zktest.Frame) bool {
	return f.Op == "ping" || f.Op == "sync" || f.First == "check"
}

// take returns the requests since the last call.
func (m *zkMeter) take() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	ops := m.ops
	m.ops = nil
	return ops
}

func zkWrites(ops []string) (n int) {
	for _, op := range ops {
		if op == "create" || op == "delete" || op == "multi" {
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
			locks, err := tier.New(second.TierOf(client), opts...)
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
func zkAnswerLate(s *zktest.Server, op string, d time.Duration) {
	s.Intercept(func(f *zktest.Frame) zktest.Action {
		if f.Dir == zktest.Reply && f.Op == op {
			return zktest.Delay(d)
		}
		return zktest.Pass
	})
}
