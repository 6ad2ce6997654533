// If Curator or kazoo is not installed, the tests are skipped. With TIERLOCK_REQUIRE_INTEROP=1 in the environment, they fail instead.

package interop_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/waittest"
	"github.com/tierlock/tierlock/internal/test/zkconn"
	"github.com/tierlock/tierlock/internal/test/zkserver"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
)

var duration = flag.Duration("duration", 2*time.Second, "of the tests in which all contend for one lock")

func TestMain(m *testing.M) {
	if os.Getenv(driverEnv) != "" {
		os.Exit(driverMain(os.Args[1:]))
	}
	var err error
	if scratch, err = os.MkdirTemp("", "interop"); err != nil {
		panic(err)
	}
	status := m.Run()
	if s, err := server(); err == nil {
		err = s.Stop()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			status = 1
		}
	}
	// An error does not matter: this is a temporary directory of the system.
	_ = os.RemoveAll(scratch)
	os.Exit(status)
}

// scratch is a directory that exists until the tests end.
var scratch string

// The variable server starts the server that all tests share. Each test uses a path of its own.
var server = sync.OnceValues(func() (*zkserver.Server, error) {
	return zkserver.Start(context.Background(), zkserver.Config{NoSync: true})
})

const (
	sessionTimeout = 10 * time.Second
	patience       = time.Minute // limit for events that should happen soon
)

// An ensemble is a ZooKeeper and a lock path. It reads the path without any knowledge of locks.
type ensemble struct {
	addr string
	conn *zk.Conn
	path string
}

func newEnsemble(t testing.TB) *ensemble {
	t.Helper()
	s, err := server()
	childtest.Check(t, err)
	conn := zkconn.Start(t, []string{s.Addr()}, sessionTimeout, nil)
	return &ensemble{s.Addr(), conn, "/interop/" + t.Name()}
}

// The method below returns the same ensemble with a path below this one.
func (e *ensemble) below(name string) *ensemble {
	return &ensemble{e.addr, e.conn, e.path + "/" + name}
}

// The method children lists the names below the lock path.
func (e *ensemble) children(t *testing.T) []string {
	t.Helper()
	need.Get(e.conn.Sync(e.path))(t)
	names, _, err := e.conn.Children(e.path)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

// awaitChildren waits until there are n nodes below the lock path.
func (e *ensemble) awaitChildren(t *testing.T, n int) {
	t.Helper()
	var names []string
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if names = e.children(t); len(names) == n {
			return
		}
	}
	t.Fatalf("below the lock path: got %d nodes %q, want %d", len(names), names, n)
}

// The method tier returns the lock of a new registry in this process.
func (e *ensemble) tier(t *testing.T, opts ...tier.RegistryOption) *tier.Mutex {
	t.Helper()
	return e.registry(t, opts...).Mutex(e.path)
}

// The method registry returns a new registry in this process.
func (e *ensemble) registry(t *testing.T, opts ...tier.RegistryOption) *tier.Registry {
	t.Helper()
	locks := need.Get(zklock.Dial(waittest.Soon(t), e.addr, opts...))(t)
	t.Cleanup(func() { locks.Close() })
	return locks
}

func acquire(t *testing.T, mu *tier.Mutex) *tier.Hold {
	t.Helper()
	return need.Get(mu.Acquire(waittest.Soon(t)))(t)
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

// The method granted waits until the lock is granted.
func (a *acquisition) granted(t *testing.T) *tier.Hold {
	t.Helper()
	<-a.done
	need.OK(t, a.err)
	return a.hold
}
