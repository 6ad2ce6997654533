package dropin_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/goleak"

	"github.com/tierlock/tierlock/internal/test/zkconn"
	"github.com/tierlock/tierlock/zklock/zktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bubble runs f in virtual time, with a new ZooKeeper. The end of the bubble checks that no goroutine is left.
func bubble(t *testing.T, f func(t *testing.T, srv *zktest.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t, zktest.Config{MinSessionTimeout: time.Second, ContainerCheck: time.Second})
		f(t, srv)
	})
}

const sessionTimeout = 9 * time.Second

// outsider returns a connection that is not used for locks.
func outsider(t *testing.T, addr string, dialer zk.Dialer) *zk.Conn {
	t.Helper()
	return zkconn.Start(t, []string{addr, addr}, sessionTimeout, dialer) // listed twice, because the library pauses at the end of its list
}
