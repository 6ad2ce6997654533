package sim

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/fault"
	"github.com/tierlock/tierlock/internal/faultproxy"
	"github.com/tierlock/tierlock/internal/zkconn"
	"github.com/tierlock/tierlock/zktest"
)

// A backend is a server and a line of its own for each process. The model and a real server behind proxies are two on
// which one test can be played.
type backend struct {
	addr    string // past all faults
	dial    zk.Dialer
	newLine func() *line
}

// A line is what lies between one process and the server.
type line struct {
	cutter // Cut, Refuse, Accept

	addr   string
	dial   func(ctx context.Context, network, address string) (net.Conn, error)
	mute   func() // in both directions
	unmute func()
	faults fault.Set
	ends   sync.WaitGroup // of what happens to it
}

// A cutter is a *zktest.Member or a *faultproxy.Proxy.
type cutter interface {
	Cut()
	Refuse()
	Accept()
}

// later ends something after d.
func (l *line) later(d time.Duration, end func()) {
	l.ends.Go(func() {
		time.Sleep(d)
		end()
	})
}

// modelBackend is a server of its own in this process, until the end of the test. It fits into a synctest bubble.
func modelBackend(t *testing.T, cfg zktest.Config) *backend {
	srv := zktest.Start(t, cfg)
	var lines sync.Map // by address
	srv.Intercept(func(f *zktest.Frame) zktest.Action {
		if l, ok := lines.Load(f.Member); ok {
			return l.(*line).faults.Intercept(f)
		}
		return zktest.Pass
	})
	n := 0
	return &backend{addr: "127.0.0.1:2181", dial: srv.DialTimeout, newLine: func() *line {
		n++
		m := srv.Member(fmt.Sprintf("127.0.1.%d:2181", n))
		l := &line{
			cutter: m, addr: fmt.Sprintf("127.0.1.%d:2181", n), dial: srv.DialContext, mute: m.Freeze, unmute: m.Unfreeze,
		}
		lines.Store(l.addr, l)
		return l
	}}
}

// serverBackend is the server at addr, with proxies in front of it until the end of the test.
func serverBackend(t *testing.T, addr string) *backend {
	return &backend{addr: addr, dial: net.DialTimeout, newLine: func() *line {
		p, err := faultproxy.Start(addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		l := &line{
			cutter: p, addr: p.Addr(), dial: new(net.Dialer).DialContext,
			mute:   func() { p.Mute(zktest.Request); p.Mute(zktest.Reply) },
			unmute: func() { p.Unmute(zktest.Request); p.Unmute(zktest.Reply) },
		}
		p.Intercept(l.faults.Intercept)
		return l
	}}
}

// operator returns a connection past all faults, until the end of the test.
func (b *backend) operator(t *testing.T) *zk.Conn {
	t.Helper()
	return zkconn.Start(t, []string{b.addr, b.addr}, 10*time.Second, b.dial)
}
