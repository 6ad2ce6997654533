package dropin_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/goleak"

	"github.com/tierlock/tierlock/zktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bubble runs f in virtual time, with a ZooKeeper of its own. The bubble makes sure that no
// goroutine is left.
func bubble(t *testing.T, f func(t *testing.T, srv *zktest.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t, zktest.Config{MinSessionTimeout: time.Second, ContainerCheck: time.Second})
		f(t, srv)
	})
}

const sessionTimeout = 9 * time.Second

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

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for deadline := time.Now().Add(20 * time.Second); !condition(); <-poll.C {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// A meter notes the requests that a server gets, except handshakes and pings.
type meter struct {
	mu  sync.Mutex
	ops []string
}

func (m *meter) note(f *zktest.Frame) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f.Dir == zktest.Request && f.Op != "connect" && f.Op != "ping" {
		m.ops = append(m.ops, f.Op)
	}
}

func (m *meter) seen() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ops
}
