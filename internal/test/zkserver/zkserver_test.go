package zkserver_test

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/zkconn"
	"github.com/tierlock/tierlock/internal/test/zkserver"
)

func TestServer(t *testing.T) {
	childtest.Run(t, childtest.Make{
		Start: func(t *testing.T) *zkserver.Server { return childtest.Start(t, zkserver.Start, zkserver.Config{}) },
		Mode:  "standalone", Release: `^3\.\d+\.\d+$`,
		Put: func(t *testing.T, s *zkserver.Server, value string) {
			need.Get(connect(t, s.Addr()).Create("/kept", []byte(value), 0, zk.WorldACL(zk.PermAll)))(t)
		},
		Get: func(t *testing.T, s *zkserver.Server) (string, error) {
			data, _, err := connect(t, s.Addr()).Get("/kept")
			return string(data), err
		},
	})
}

func TestStartOnATakenPortFails(t *testing.T) {
	first := childtest.Start(t, zkserver.Start, zkserver.Config{NoSync: true})
	_, port, _ := net.SplitHostPort(first.Addr())
	number := need.Get(net.LookupPort("tcp", port))(t)
	if s, err := zkserver.Start(t.Context(), zkserver.Config{Port: number}); !errors.Is(err, syscall.EADDRINUSE) {
		if s != nil {
			_ = s.Stop()
		}
		t.Errorf("second server on port %d: got %v, want %v", number, err, syscall.EADDRINUSE)
	}
}

func TestContainerCheckReapsContainers(t *testing.T) {
	s := childtest.Start(t, zkserver.Start, zkserver.Config{NoSync: true, ContainerCheck: 100 * time.Millisecond})
	conn := connect(t, s.Addr())
	need.Get(conn.CreateContainer("/c", nil, zk.FlagContainer, zk.WorldACL(zk.PermAll)))(t)
	need.Get(conn.Create("/c/child", nil, 0, zk.WorldACL(zk.PermAll)))(t)
	need.OK(t, conn.Delete("/c/child", -1))
	childtest.Eventually(t, "the empty container is deleted", func() bool {
		exists, _, err := conn.Exists("/c")
		return err == nil && !exists
	})
}

func connect(t *testing.T, addr string) *zk.Conn {
	t.Helper()
	return zkconn.Start(t, []string{addr}, 10*time.Second, nil)
}
