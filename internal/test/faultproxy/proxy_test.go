package faultproxy_test

import (
	"net"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/waittest"
	"github.com/tierlock/tierlock/internal/wire"
	"github.com/tierlock/tierlock/zklock/zktest"
)

func TestMuteFromTheHookHoldsUpTheVeryFrame(t *testing.T) {
	for _, dir := range []zktest.Direction{zktest.Request, zktest.Reply} {
		t.Run(dir.String(), func(t *testing.T) {
			b := newBench(t)
			conn := b.connect()
			muted := make(chan struct{})
			b.proxy.Intercept(func(f *zktest.Frame) zktest.Action {
				if f.Op == "create" && f.Dir == dir {
					b.proxy.Mute(dir)
					close(muted)
				}
				return zktest.Pass
			})
			created := create(conn, "/a")
			<-muted
			stillThere(t, func() bool { return len(created) == 0 && (dir == zktest.Reply || !b.srv.Exists("/a")) })
			b.proxy.Unmute(dir)
			need.OK(t, <-created)
		})
	}
}

// stillThere checks that holds stays true for a moment.
func stillThere(t *testing.T, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Millisecond); time.Now().Before(end); time.Sleep(time.Millisecond) {
		need.Must(t, "it got through", holds())
	}
}

func TestRefusedConnectionsEndAndOthersStay(t *testing.T) {
	b := newBench(t)
	conn := b.connect()
	b.proxy.Refuse()
	dialRaw(b).ends()
	need.OK(t, <-create(conn, "/a"))
	b.proxy.Accept()
	b.connect()
}

func TestConnectionsEndOnBothSides(t *testing.T) {
	for name, end := range map[string]func(b *bench, c raw){
		"cut":         func(b *bench, _ raw) { b.proxy.Cut() },
		"by a client": func(_ *bench, c raw) { c.conn.Close() },
		"by a server": func(b *bench, _ raw) { b.srv.CutAll() },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			c, d := dialRaw(b), dialRaw(b)
			c.shake()
			d.shake()
			end(b, c)
			left := 0
			if name == "by a client" {
				left = 1
			} else {
				c.ends()
				d.ends()
			}
			waittest.Eventually(t, "the server to notice", func() bool {
				n := 0
				for _, session := range b.srv.Sessions() {
					if session.Member != "" {
						n++
					}
				}
				return n == left
			})
		})
	}
}

func TestConnectionEndsWhereThereIsNoServer(t *testing.T) {
	listener := need.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	listener.Close() // no server listens on this address any more
	dialRaw(&bench{T: t, proxy: proxyTo(t, listener.Addr().String())}).ends()
}

func TestConnectionEndsWithAFrameThatIsTooLong(t *testing.T) {
	c := dialRaw(newBench(t))
	c.write([]byte("GET / HTTP/1.1\r\n"))
	c.ends()
}

// Close does not wait for anything that is blocked. goleak checks that it leaves no goroutine.
func TestCloseWaitsForNothing(t *testing.T) {
	need.Each(t, map[string]func(b *bench){
		"muted requests": func(b *bench) { b.proxy.Mute(zktest.Request) },
		"muted replies":  func(b *bench) { b.proxy.Mute(zktest.Reply) },
		"frozen server":  func(b *bench) { b.srv.Freeze() },
	}, func(t *testing.T, hold func(b *bench)) {
		b := newBench(t)
		c := dialRaw(b)
		c.shake()
		hold(b)
		c.write(request(1, wire.OpSync, "/"))
		c.silent()
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			b.proxy.Close()
			b.proxy.Close()
		}()
		waittest.Ended(b, "Close", closed)
		need.That(t, "a closed proxy accepts", need.ErrOf(net.Dial("tcp", b.proxy.Addr())) != nil)
	})
}

func TestCloseReturnsAfterTheLastCallOfTheHook(t *testing.T) {
	b := newBench(t)
	c := dialRaw(b)
	c.shake()
	called, finish := make(chan struct{}), make(chan struct{})
	b.proxy.Intercept(func(*zktest.Frame) zktest.Action {
		close(called)
		<-finish
		return zktest.Pass
	})
	c.write(request(1, wire.OpSync, "/"))
	waittest.Ended(b, "the hook", called)
	closed := make(chan error, 1)
	go func() {
		b.proxy.Close()
		closed <- nil
	}()
	stillThere(t, func() bool { return len(closed) == 0 })
	close(finish)
	<-closed
}
