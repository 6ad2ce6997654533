// Package twin offers the model and a real server behind fault proxies as two grounds on which one test can be played.
// It is for tests.
package twin

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/faultproxy"
	"github.com/tierlock/tierlock/zktest"
)

// A Ground is a server, and a line of its own for each process.
type Ground struct {
	addr string // past all faults
	dial zk.Dialer
	line func() *Line
}

// Line returns a new line.
func (g *Ground) Line() *Line { return g.line() }

// A Line is what lies between one process and the server.
type Line struct {
	network // Cut, Refuse, Accept

	Addr      string
	Dial      func(ctx context.Context, network, address string) (net.Conn, error)
	Mute      func() // in both directions
	Unmute    func()
	Intercept func(hook func(*zktest.Frame) Action)
}

// A network is a *zktest.Member or a *faultproxy.Proxy.
type network interface {
	Cut()
	Refuse()
	Accept()
}

// An Action means the same on both grounds.
type Action struct {
	model zktest.Action
	proxy faultproxy.Action
}

// The actions of zktest.
var (
	Pass    = Action{zktest.Pass, faultproxy.Pass}
	Drop    = Action{zktest.Drop, faultproxy.Drop}
	Cut     = Action{zktest.Cut, faultproxy.Cut}
	Expired = Action{zktest.Expired, faultproxy.Expired}
)

// Delay is [zktest.Delay].
func Delay(d time.Duration) Action { return Action{zktest.Delay(d), faultproxy.Delay(d)} }

// Error is [zktest.Error].
func Error(code zktest.Code) Action { return Action{zktest.Error(code), faultproxy.Error(code)} }

// Model is a server of its own in this process, until the end of the test. It fits into a synctest bubble.
func Model(t *testing.T, cfg zktest.Config) *Ground {
	srv := zktest.Start(t, cfg)
	var hooks sync.Map // address of a line → its hook
	srv.Intercept(func(f *zktest.Frame) zktest.Action {
		if hook, ok := hooks.Load(f.Member); ok {
			return hook.(func(*zktest.Frame) Action)(f).model
		}
		return zktest.Pass
	})
	lines := 0
	return &Ground{addr: "127.0.0.1:2181", dial: srv.DialTimeout, line: func() *Line {
		lines++
		addr := fmt.Sprintf("127.0.1.%d:2181", lines)
		m := srv.Member(addr)
		return &Line{
			network: m, Addr: addr, Dial: srv.DialContext, Mute: m.Freeze, Unmute: m.Unfreeze,
			Intercept: func(hook func(*zktest.Frame) Action) { hooks.Store(addr, hook) },
		}
	}}
}

// Server is the server at addr, with proxies in front of it until the end of the test.
func Server(t *testing.T, addr string) *Ground {
	return &Ground{addr: addr, dial: net.DialTimeout, line: func() *Line {
		p, err := faultproxy.Start(addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		return &Line{
			network: p, Addr: p.Addr(), Dial: new(net.Dialer).DialContext,
			Mute:   func() { p.Mute(zktest.ToServer); p.Mute(zktest.ToClient) },
			Unmute: func() { p.Unmute(zktest.ToServer); p.Unmute(zktest.ToClient) },
			Intercept: func(hook func(*zktest.Frame) Action) {
				p.Intercept(func(f *faultproxy.Frame) faultproxy.Action { return hook(&f.Frame).proxy })
			},
		}
	}}
}
