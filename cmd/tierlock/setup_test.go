//go:build linux || darwin || freebsd

package main_test

import (
	"context"
	"errors"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/child/childtest"
	"github.com/tierlock/tierlock/internal/command/commandtest"
	"github.com/tierlock/tierlock/internal/faultproxy"
	"github.com/tierlock/tierlock/internal/zkconn"
	"github.com/tierlock/tierlock/internal/zkserver"
)

func TestMain(m *testing.M) {
	commandtest.Main(m, "tierlock", func() {
		if server, err := shared(); err == nil {
			server.Stop()
		}
	})
}

// shared is a server for all tests, which each use paths of their own.
var shared = sync.OnceValues(func() (*zkserver.Server, error) {
	return zkserver.Start(context.Background(), zkserver.Config{NoSync: true})
})

func startServer(t *testing.T) *zkserver.Server {
	t.Helper()
	server, err := shared()
	childtest.Check(t, err, zkserver.ErrNotFound)
	return server
}

// at has the command find servers.
func at(servers string) []string { return []string{"TIERLOCK_ZK=" + servers} }

// start starts tierlock with args, on servers.
func start(t *testing.T, servers string, args ...string) *commandtest.Tool {
	t.Helper()
	return commandtest.Start(t, at(servers), args...)
}

func startWith(t *testing.T, servers string, prepare func(*exec.Cmd), args ...string) *commandtest.Tool {
	t.Helper()
	return commandtest.StartWith(t, at(servers), prepare, args...)
}

// proxyTo returns a proxy that leads to the server.
func proxyTo(t *testing.T, server *zkserver.Server) *faultproxy.Proxy {
	t.Helper()
	proxy, err := faultproxy.Start(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	return proxy
}

// operate returns a plain connection to the server, such as operators have.
func operate(t *testing.T, server *zkserver.Server) *zk.Conn {
	t.Helper()
	return zkconn.Start(t, []string{server.Addr(), server.Addr()}, 10*time.Second, nil)
}

// queue returns the children of the lock path.
func queue(t *testing.T, conn *zk.Conn, path string) []string {
	t.Helper()
	children, _, err := conn.Children(path)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		t.Fatal(err)
	}
	return children
}
