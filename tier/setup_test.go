package tier_test

import (
	"context"
	"fmt"
	"os"
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
	"go.uber.org/goleak"
)

// suite stops the shared server before goroutines are counted.
type suite struct{ *testing.M }

func (s suite) Run() int {
	defer func() {
		if shared.server != nil {
			shared.server.Stop()
		}
	}()
	return s.M.Run()
}

func TestMain(m *testing.M) {
	if addr := os.Getenv(holderEnv); addr != "" {
		holdUntilKilled(addr)
	}
	goleak.VerifyTestMain(suite{m})
}

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

// bubble runs f in virtual time, with a ZooKeeper of its own. The bubble makes sure
// that no goroutine is left.
func bubble(t *testing.T, f func(t *testing.T, srv *zktest.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t, zktest.Config{MinSessionTimeout: time.Second, ContainerCheck: time.Second})
		f(t, srv)
	})
}

const sessionTimeout = 9 * time.Second

// process returns the locks of one more process, in strict order.
func process(t *testing.T, srv *zktest.Server, opts ...zklock.Option) *tier.Registry {
	t.Helper()
	return dial(t, "127.0.0.1:2181", append([]zklock.Option{
		zklock.WithDialContext(srv.DialContext), zklock.WithSessionTimeout(sessionTimeout),
	}, opts...)...)
}

func dial(t *testing.T, addr string, opts ...zklock.Option) *tier.Registry {
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
