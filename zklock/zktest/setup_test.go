package zktest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/goleak"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/zkconn"
	"github.com/tierlock/tierlock/zklock/zktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	addr  = "127.0.0.1:2181"
	addr2 = "127.0.0.2:2181"

	timeout = 10 * time.Second // the timeout of most sessions
)

var everybody = zk.WorldACL(zk.PermAll)

// bubble runs f with a server in a synctest bubble. At the end it checks that neither has left a goroutine.
func bubble(t *testing.T, f func(t *testing.T, s *zktest.Server), cfg ...zktest.Config) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, zktest.Start(t, cfg...)) })
}

// connect returns a client of the member at addr, with a session.
func connect(t *testing.T, s *zktest.Server, timeout time.Duration, addr string) *zk.Conn {
	t.Helper()
	return dial(t, s.DialTimeout, timeout, addr)
}

// dial connects with the given dialer. The address is listed twice, because the client waits for a second before it tries a lone address
// again.
func dial(t *testing.T, dialer zk.Dialer, timeout time.Duration, addr string) *zk.Conn {
	t.Helper()
	return zkconn.Start(t, []string{addr, addr}, timeout, dialer)
}

func create(t *testing.T, conn *zk.Conn, path string, flags int32) {
	t.Helper()
	need.Get(conn.Create(path, nil, flags, everybody))(t)
}

// asked starts a request that has to wait. It returns a channel that receives the error of the request.
func asked(f func() error) <-chan error {
	answer := make(chan error, 1)
	go func() { answer <- f() }()
	synctest.Wait()
	return answer
}

// creating starts a create that has to wait.
func creating(conn *zk.Conn, path string) <-chan error {
	return asked(func() error { _, err := conn.Create(path, nil, 0, everybody); return err })
}

// connected checks that a client has a session. If same is true, it has to be the old session, and otherwise another one.
func connected(t *testing.T, conn *zk.Conn, old int64, same bool) {
	t.Helper()
	if got := conn.SessionID(); (got == old) != same || got == 0 || conn.State() != zk.StateHasSession {
		t.Errorf("client: session %#x, %v; want session %#x: %t", got, conn.State(), old, same)
	}
}
