package faultproxy_test

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/goleak"

	"github.com/tierlock/tierlock/internal/test/fault"
	"github.com/tierlock/tierlock/internal/test/faultproxy"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/zkconn"
	"github.com/tierlock/tierlock/zklock/zktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 10 * time.Second

// A bench is a server of the ZooKeeper model with a proxy in front of it.
type bench struct {
	*testing.T
	srv   *zktest.Server
	proxy *faultproxy.Proxy
}

func newBench(t *testing.T) *bench {
	t.Helper()
	srv := zktest.Start(t)
	addr := need.Get(srv.Listen("127.0.0.1:0"))(t)
	return &bench{t, srv, proxyTo(t, addr.String())}
}

func proxyTo(t *testing.T, server string) *faultproxy.Proxy {
	t.Helper()
	p := need.Get(faultproxy.Start(server))(t)
	t.Cleanup(p.Close)
	return p
}

// The method connect returns a client that has a session.
func (b *bench) connect() *zk.Conn {
	b.Helper()
	addr := b.proxy.Addr() // the address is in the list twice, because the client waits a second before it tries its only address again
	return zkconn.Start(b.T, []string{addr, addr}, 8*time.Second, nil)
}

// The method cut cuts the connection at the next frame with this operation. The channel is closed when that has happened.
func (b *bench) cut(op string, at zktest.Direction) <-chan struct{} {
	var faults fault.Set
	b.proxy.Intercept(faults.Intercept)
	return faults.Arm(fault.Fault{Op: op, At: at, Do: zktest.Cut, Times: 1}).Hit
}

// The function create creates a node in a goroutine of its own, and sends the result on the channel.
func create(conn *zk.Conn, path string) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := conn.Create(path, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		done <- err
	}()
	return done
}
