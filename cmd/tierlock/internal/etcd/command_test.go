//go:build linux || darwin || freebsd

package etcd

import (
	"context"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/command/commandtest"
	"github.com/tierlock/tierlock/etcdlock"
	"github.com/tierlock/tierlock/internal/etcdversion"
	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/etcdserver"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
)

func TestMain(m *testing.M) {
	commandtest.Main(m, func() (*etcdserver.Server, error) {
		return etcdserver.Start(context.Background(), etcdserver.Config{NoSync: true})
	})
}

func startServer(t *testing.T) *etcdserver.Server {
	return commandtest.Server(t)
}

func TestCommand(t *testing.T) {
	t.Parallel()
	commandtest.Run(t, func(t *testing.T, own bool) commandtest.Site {
		server := startServer(t)
		if own {
			server = childtest.Start(t, etcdserver.Start, etcdserver.Config{NoSync: true})
		}
		return commandtest.Site{
			Env:     at(server.Addr()),
			Nowhere: at("127.0.0.1:1"),
			Server:  server,
			Ailing:  ailing(t, server) == 1,
			Locks: func(t *testing.T, label string) (*tier.Registry, error) {
				return etcdlock.New(t.Context(), operate(t, server), tier.WithLabel(label))
			},
		}
	})
}

// ailing returns the exit status of doctor for the case that only the server has a problem.
func ailing(t *testing.T, server *etcdserver.Server) int {
	t.Helper()
	release := need.Get(server.Version())(t)
	if etcdversion.TooOld(release) {
		return 1
	}
	return 0
}

func at(servers string) []string { return []string{"TIERLOCK_STORE=etcd://" + servers} }

// operate returns a client such as operators use.
func operate(t *testing.T, server *etcdserver.Server) *clientv3.Client {
	t.Helper()
	client := need.Get(clientv3.New(clientv3.Config{Endpoints: []string{server.Addr()}, Logger: zap.NewNop()}))(t)
	t.Cleanup(func() { client.Close() })
	return client
}
