//go:build linux || darwin || freebsd

package main_test

import (
	"context"
	"errors"
	"os/exec"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/command/commandtest"
	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/faultproxy"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/zkconn"
	"github.com/tierlock/tierlock/internal/test/zkserver"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// The flag short sets the session of runs that lose a lock in a test. The margin is then 1.33 s.
const short = "-session 4s "

func TestMain(m *testing.M) {
	commandtest.Main(m, func() (*zkserver.Server, error) {
		return zkserver.Start(context.Background(), zkserver.Config{NoSync: true})
	})
}

func startServer(t *testing.T) *zkserver.Server { return commandtest.Server(t) }

// at returns the environment in which the command finds servers.
func at(servers string) []string { return []string{"TIERLOCK_STORE=zk://" + servers} }

// start starts tierlock with args, on servers.
func start(t *testing.T, servers string, args ...string) *commandtest.Tool {
	t.Helper()
	return commandtest.Start(t, at(servers), args...)
}

func startWith(t *testing.T, servers string, prepare func(*exec.Cmd), args ...string) *commandtest.Tool {
	t.Helper()
	return commandtest.StartWith(t, at(servers), prepare, args...)
}

// proxyTo returns a proxy in front of the server.
func proxyTo(t *testing.T, server *zkserver.Server) *faultproxy.Proxy {
	t.Helper()
	proxy := need.Get(faultproxy.Start(server.Addr()))(t)
	t.Cleanup(proxy.Close)
	return proxy
}

// operate returns a connection such as operators use.
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

// deleteQueue deletes the whole queue, the holder included.
func deleteQueue(t *testing.T, conn *zk.Conn, path string) {
	t.Helper()
	for _, name := range queue(t, conn, path) {
		need.OK(t, conn.Delete(path+"/"+name, -1))
	}
}

// black makes the proxy swallow everything in both directions, without an error.
func black(proxy *faultproxy.Proxy) {
	proxy.Mute(zktest.Request)
	proxy.Mute(zktest.Reply)
}

// contend starts another run that waits for the path, and returns when it is in the queue.
func contend(t *testing.T, server *zkserver.Server, path string, stage *commandtest.Stage) *commandtest.Tool {
	t.Helper()
	conn := operate(t, server)
	before := len(queue(t, conn, path))
	p := start(t, server.Addr(), commandtest.Under(short, path, stage.Command()...)...)
	childtest.Eventually(t, "another contender", func() bool { return len(queue(t, conn, path)) > before })
	return p
}
