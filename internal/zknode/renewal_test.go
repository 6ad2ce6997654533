package zknode_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/zknode"
	"github.com/tierlock/tierlock/zklock/zktest"
)

const (
	wornFrom = 1 << 30 // from this number on, the path has to be created again
	wornStep = 1 << 20 // after this many more numbers, another attempt is made
)

// wear gives the next node of the lock this number.
func (p process) wear(t *testing.T, s *zktest.Server, number int32) {
	t.Helper()
	n := p.acquire(t)
	s.SetSequence(path, number)
	wantErr(t, "Release", n.Release(), nil)
	synctest.Wait()
}

func numberOf(node string) int32 {
	n, _ := strconv.Atoi(node[len(node)-10:])
	return int32(n)
}

// requeue gives the node n up and queues again.
func (p process) requeue(t *testing.T, n *zknode.Node) *request {
	t.Helper()
	return submit(func() (*zknode.Node, error) { return n.Requeue(t.Context()) })
}

func TestWornPathBeginsAnewAtTheReleaseOfTheOnlyOne(t *testing.T) {
	each(t, map[string]func(p process, n *zknode.Node) (*zknode.Node, error){
		"release": func(p process, n *zknode.Node) (*zknode.Node, error) {
			n.Release()
			return p.lock.Acquire(context.Background())
		},
		"requeue": func(_ process, n *zknode.Node) (*zknode.Node, error) { return n.Requeue(context.Background()) },
		"release, and nobody wants it": func(p process, n *zknode.Node) (*zknode.Node, error) {
			n.Release()
			synctest.Wait()
			return p.lock.TryAcquire(context.Background())
		},
	}, func(t *testing.T, s *zktest.Server, giveUp func(p process, n *zknode.Node) (*zknode.Node, error)) {
		p := start(t, s)
		p.wear(t, s, wornFrom)
		n, begun := p.acquire(t), time.Now()
		next := need.Get(giveUp(p, n))(t)
		if got := numberOf(next.Path()); got != 0 || next.Token() <= n.Token() || time.Since(begun) > 0 {
			t.Errorf("number %d, token %d after %d, after %v", got, next.Token(), n.Token(), time.Since(begun))
		}
		next.Release()
	})
}

func TestPathThatIsNotWornYetIsKept(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		p.wear(t, s, wornFrom-1)
		tr := record(s)
		n := p.acquire(t)
		need.That(t, "contended, although no process waits", !closed(n.Contended()))
		synctest.Wait()
		tr.take()
		n.Release()
		need.Equal(t, "requests to release", len(tr.take()), 1)
		need.That(t, "the path is gone", s.Exists(path))
	})
}

// On a worn path, contenders may wait outside of the queue, where holders cannot see them. Therefore a holder there always counts as
// contended.
func TestNodeOfAWornPathIsContendedForEver(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		time.Sleep(time.Hour)
		p.wear(t, s, wornFrom)
		n := p.acquire(t)
		tr := record(s)
		<-n.Contended()
		need.AtLeast(t, "contended for", n.ContendedFor(), time.Minute)
		need.Empty(t, "asked to find that out", tr.take())
		n.Release()
	})
}

// obstacles lists what may prevent a worn path from being deleted, with a way to remove each obstacle.
var obstacles = map[string]struct {
	acl  []zk.ACL // ACL of the parent of the path
	put  func(t *testing.T, conn *zk.Conn)
	lift func(conn *zk.Conn)
}{
	"a plain path": {
		put: func(t *testing.T, conn *zk.Conn) { put(t, conn, 0, path) },
	},
	"a container of somebody else": {
		put: func(_ *testing.T, conn *zk.Conn) {
			conn.CreateContainer(path, nil, zk.FlagContainer, zk.WorldACL(zk.PermAll))
		},
	},
	"a container of ours that has got an ACL": {
		put: func(_ *testing.T, conn *zk.Conn) {
			conn.CreateContainer(path, []byte(ours), zk.FlagContainer, zk.WorldACL(zk.PermAll))
			conn.SetACL(path, zk.WorldACL(zk.PermAll&^zk.PermAdmin), -1)
		},
	},
	"no permission": {
		acl:  zk.WorldACL(zk.PermAll &^ zk.PermDelete),
		put:  func(*testing.T, *zk.Conn) {},
		lift: func(conn *zk.Conn) { conn.SetACL("/locks", zk.WorldACL(zk.PermAll), -1) },
	},
	"a foreign child": {
		put: func(t *testing.T, conn *zk.Conn) {
			conn.CreateContainer(path, []byte(ours), zk.FlagContainer, zk.WorldACL(zk.PermAll))
			put(t, conn, 0, path+"/readme")
		},
		lift: func(conn *zk.Conn) { conn.Delete(path+"/readme", -1) },
	},
	"a lock below": {
		put: func(t *testing.T, conn *zk.Conn) {
			conn.CreateContainer(path, []byte(ours), zk.FlagContainer, zk.WorldACL(zk.PermAll))
			conn.CreateContainer(path+"/y", []byte(ours), zk.FlagContainer, zk.WorldACL(zk.PermAll))
		},
		lift: func(conn *zk.Conn) { conn.Delete(path+"/y", -1) },
	},
}

func TestWornPathThatCannotBeDeletedIsQueuedOnAndTriedAgainLater(t *testing.T) {
	for name, obstacle := range obstacles {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server) {
				conn := raw(t, s)
				if obstacle.acl == nil {
					obstacle.acl = zk.WorldACL(zk.PermAll)
				}
				create(t, conn, "/locks", "", 0, obstacle.acl)
				obstacle.put(t, conn)
				p, log := startLogged(t, s)
				p.wear(t, s, wornFrom+3)

				n, begun := p.acquire(t), time.Now()
				for i := range int32(10) {
					need.Equal(t, fmt.Sprintf("the number of turn %d", i), numberOf(n.Path()), wornFrom+3+i)
					n = p.requeue(t, n).granted(t)
				}
				wantWithin(t, 0, "ten turns", begun)
				need.Equal(t, "times logged in "+log.String(), strings.Count(log.String(), "sequence numbers"), 1)
				need.Has(t, "logged", log.String(), "path="+path+" ")
				n.Release()
				if obstacle.lift == nil {
					return
				}
				obstacle.lift(conn)
				n = p.acquire(t)
				s.SetSequence(path, wornFrom+wornStep-1)
				for _, want := range []int32{wornFrom + wornStep - 1, wornFrom + wornStep, 0, wornFrom, 0} {
					if want == wornFrom {
						s.SetSequence(path, wornFrom)
					}
					n = p.requeue(t, n).granted(t)
					need.Equal(t, "number", numberOf(n.Path()), want)
				}
				n.Release()
			})
		})
	}
}

// Another process may already have deleted and recreated a worn path. This process then queues on the new path, although it is in use.
func TestNewPathIsQueuedOnThoughItIsInUse(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, q := start(t, s), start(t, s)
		p.wear(t, s, wornFrom)
		n := p.acquire(t)
		other := q.queue(t.Context())
		meet(s, func(f *zktest.Frame) bool {
			return f.Session == p.session && f.Dir == zktest.Request && f.Op == "sync" && !s.Exists(n.Path())
		}, zktest.Delay(10*time.Millisecond))
		r := p.requeue(t, n)
		last := q.requeue(t, other.granted(t)).granted(t)
		time.Sleep(100 * time.Millisecond)
		need.Equal(t, "nodes in the queue", len(s.Children(path)), 2)
		need.Equal(t, "the number of the last", numberOf(last.Path()), 0)
		last.Release()
		r.granted(t).Release()
	})
}

// A worn path may become empty without an event, if a reconnect could not set its watches again. The path is still created again.
func TestWornPathThatDrainsUnseenBeginsAnew(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, q := start(t, s), start(t, s)
		p.wear(t, s, wornFrom)
		n := p.acquire(t)
		other := q.queue(t.Context())
		r := p.requeue(t, n)
		meet(s, func(f *zktest.Frame) bool {
			return f.Op == "event" && f.Session == p.session || f.Session == q.session && f.Dir == zktest.Request && f.Op == "sync"
		}, zktest.Drop)
		other.granted(t).Release()
		begun := time.Now()
		r.await(t)
		need.AtMost(t, "the path was created again after", time.Since(begun), timeout/4)
		need.Equal(t, "the number", numberOf(r.node.Path()), 0)
		r.node.Release()
	})
}

// Contenders of other libraries do not leave a worn path, and a holder may hold for long. A wait outside of the queue therefore ends after
// a session timeout.
func TestWaitOutsideAWornPathEndsAfterASessionTimeout(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn := raw(t, s)
		p, log := startLogged(t, s)
		p.wear(t, s, wornFrom)
		n := p.acquire(t)
		foreign := path + "/_c_x-lock-" + strconv.Itoa(wornFrom+1)
		put(t, conn, 0, foreign)
		s.SetSequence(path, wornFrom+2)
		r := p.requeue(t, n)
		need.Equal(t, "nodes in the queue right after the release", len(s.Children(path)), 1)
		time.Sleep(timeout - time.Millisecond)
		need.Equal(t, "nodes in the queue shortly before a timeout", len(s.Children(path)), 1)
		need.That(t, "logged "+log.String(), !strings.Contains(log.String(), "sequence numbers"))
		time.Sleep(2 * time.Millisecond)
		if names := s.Children(path); len(names) != 2 || strings.Count(log.String(), "sequence numbers") != 1 || p.Watchers(path) > 0 {
			t.Errorf("queue after a timeout: %q; %d watchers; logged %s", names, p.Watchers(path), log)
		}
		remove(t, conn, foreign)
		begun := time.Now()
		p.requeue(t, r.granted(t)).granted(t).Release()
		need.Equal(t, "time outside again", time.Since(begun), 0)
		need.Equal(t, "watchers", p.Watchers(path), 0)
	})
}

func TestWaitOutsideAWornPathEndsWithContextAndClient(t *testing.T) {
	type row struct {
		do   func(p process, cancel func())
		want error
	}
	each(t, map[string]row{
		"context": {func(_ process, cancel func()) { cancel() }, context.Canceled},
		"client":  {func(p process, _ func()) { p.Close() }, second.ErrClosed},
	}, func(t *testing.T, s *zktest.Server, end row) {
		p, log := startLogged(t, s)
		q := start(t, s)
		p.wear(t, s, wornFrom)
		n := p.acquire(t)
		other := q.queue(t.Context())
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r := submit(func() (*zknode.Node, error) { return n.Requeue(ctx) })
		need.That(t, "did not wait", r.waiting())
		begun, tr := time.Now(), record(s)
		end.do(p, cancel)
		wantErr(t, "Requeue", r.failed(t), end.want)
		need.Equal(t, "left after", time.Since(begun), 0)
		other.granted(t).Release()
		time.Sleep(2 * timeout)
		ops := tr.take()
		wantEmpty(t, s)
		need.That(t, fmt.Sprintf("sent %v, want no create", ops), !slices.Contains(ops, "create"))
		need.That(t, "logged "+log.String(), !strings.Contains(log.String(), "sequence numbers"))
	})
}

func TestTryAcquireDoesNotWaitOutside(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn, p := raw(t, s), start(t, s)
		p.wear(t, s, wornFrom)
		n := p.acquire(t)
		foreign := path + "/_c_x-lock-" + strconv.Itoa(wornFrom+1)
		put(t, conn, 0, foreign)
		n.Release()
		synctest.Wait()
		begun := time.Now()
		wantErr(t, "TryAcquire of a busy path", need.ErrOf(p.lock.TryAcquire(t.Context())), second.ErrLocked)
		meet(s, pushed, zktest.Drop) // keeps the path from being created again at once
		remove(t, conn, foreign)
		n = need.Get(p.lock.TryAcquire(t.Context()))(t)
		wantWithin(t, 0, "TryAcquire", begun)
		n.Release()
	})
}

// Two acquisitions of the same client wait outside of the queue at the same time.
func TestWaitOutsideIsNotProlongedByOthers(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn, p := raw(t, s), start(t, s)
		p.wear(t, s, wornFrom)
		n := p.acquire(t)
		second := p.queue(t.Context())
		s.SetSequence(path, wornFrom+10)
		put(t, conn, 0, path+"/_c_x-lock-"+strconv.Itoa(wornFrom+2))
		n.Release()
		time.Sleep(timeout / 2)
		p.requeue(t, second.granted(t))
		time.Sleep(timeout/2 + time.Millisecond)
		need.Equal(t, "nodes in the queue a timeout after the first went outside", len(s.Children(path)), 2)
	})
}

// Without a connection, the client does not know the state of a worn path. It tries again when the connection is back.
func TestRenewalThatAnOutageEndsIsTriedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, log := startLogged(t, s)
		p.wear(t, s, wornFrom)
		n := p.acquire(t)
		meetOnce(s, is("sync", zktest.Request), zktest.Cut)
		s.Member(addr).Refuse()
		n.Release()
		time.Sleep(timeout - time.Second)
		s.Member(addr).Accept()
		time.Sleep(2 * time.Second)
		p.acquire(t).Release()
		n = p.acquire(t)
		need.AtMost(t, "the number", numberOf(n.Path()), 1)
		need.That(t, "logged "+log.String(), !strings.Contains(log.String(), "sequence"))
		n.Release()
	})
}

// The attempt to recreate a path may time out before the client reconnects. By then, no contender waits for the new path. The client must
// not send anything more for it.
func TestRenewalThatEndsInAnOutageAsksForNothingAfterIt(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, q := start(t, s), start(t, s)
		p.wear(t, s, wornFrom)
		n := p.acquire(t)
		other := q.queue(t.Context())
		n.Release()
		time.Sleep(timeout - 1500*time.Millisecond) // once a second, the client library fails the requests that it cannot send
		s.Member(addr).Refuse()
		s.Cut(p.session)
		time.Sleep(1600 * time.Millisecond)
		looks := 0
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Dir == zktest.Request && f.Session == p.session && f.Path == path {
				looks++
			}
			return zktest.Pass
		})
		s.Member(addr).Accept()
		time.Sleep(timeout / 4)
		synctest.Wait()
		need.That(t, fmt.Sprintf("looked %d times; connection: %v", looks, p.Err()), looks == 0 && p.Err() == nil)
		other.granted(t).Release()
	})
}
