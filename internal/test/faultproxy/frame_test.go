package faultproxy_test

import (
	"sync"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/waittest"
	"github.com/tierlock/tierlock/internal/wire"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// A record contains the frames that the proxy has seen. Requests and messages from the server are in separate lists, because the two
// directions have no common order.
type record struct {
	mu       sync.Mutex
	requests []zktest.Frame
	replies  []zktest.Frame
}

func (r *record) note(f zktest.Frame) {
	if f.Op == "ping" {
		return
	}
	f.Member = "" // the member is the address of the proxy in one case, and that of the server in the other
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.Dir == zktest.Request {
		r.requests = append(r.requests, f)
	} else {
		r.replies = append(r.replies, f)
	}
}

func (r *record) compare(t *testing.T, want *record) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, side := range []struct{ got, want []zktest.Frame }{
		{r.requests, want.requests}, {r.replies, want.replies},
	} {
		need.That(t, "there are no frames", len(side.want) != 0)
		need.List(t, "through the proxy", side.got, side.want...)
	}
}

func TestHookSeesWhatTheServersOwnHookSees(t *testing.T) {
	b := newBench(t)
	var server, proxy record
	b.srv.Intercept(func(f *zktest.Frame) zktest.Action { server.note(*f); return zktest.Pass })
	b.proxy.Intercept(func(f *zktest.Frame) zktest.Action { proxy.note(*f); return zktest.Pass })

	conn := b.connect()
	all := zk.WorldACL(zk.PermAll)
	conn.AddAuth("digest", []byte("user:password"))
	conn.CreateContainer("/c", nil, zk.FlagContainer, all)
	conn.Create("/c/a-", []byte("x"), zk.FlagEphemeral|zk.FlagSequence, all)
	_, _, deleted, err := conn.GetW("/c/a-0000000000")
	need.OK(t, err)
	conn.Exists("/nothing")
	conn.Children("/c")
	conn.Sync("/c")
	conn.Set("/nothing", nil, -1)
	conn.Multi(&zk.DeleteRequest{Path: "/c/a-0000000000", Version: -1}, &zk.CreateRequest{Path: "/c/b", Acl: all})
	<-deleted
	b.proxy.Cut()
	waittest.Eventually(t, "a second handshake", func() bool {
		_, _, err := conn.Get("/c/b")
		return err == nil
	})
	conn.Delete("/c/b", -1)

	proxy.compare(t, &server)
}

func TestPingsAreAnsweredInOrder(t *testing.T) {
	b := newBench(t)
	c := dialRaw(b)
	c.shake()
	numbers := make(chan int, 2)
	b.proxy.Intercept(func(f *zktest.Frame) zktest.Action {
		if f.Dir == zktest.Reply {
			numbers <- f.Nth
		}
		return zktest.Pass
	})
	ping := frame(-2, wire.OpPing)
	c.write(append(ping, ping...))
	c.reply()
	c.reply()
	need.Equal(t, "the number of the first answer", <-numbers, 1)
	need.Equal(t, "the number of the second answer", <-numbers, 2)
}
