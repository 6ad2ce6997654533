package zknode_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/zkconn"
	"github.com/tierlock/tierlock/internal/zknode"
	"github.com/tierlock/tierlock/zklock/zktest"
)

func TestReleaseIsOneRequest(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		n := p.acquire(t)
		meet(s, pushed, zktest.Drop) // drops this event, which would also report that the node is gone
		wantErr(t, "Release", n.Release(), nil)
		need.Equal(t, "nodes still to be deleted", p.Reaping(), 0)
		tr := record(s)
		time.Sleep(timeout)
		need.Empty(t, "sent after the delete was answered", tr.take())
	})
}

// The node of a caller that has left is deleted without another read, and the node ahead is not watched.
func TestNodeOfACallerWhoHasLeftIsDeletedAtOnceAndDoesNotQueue(t *testing.T) {
	each(t, map[string]bool{"nobody ahead": false, "somebody ahead": true}, func(t *testing.T, s *zktest.Server, taken bool) {
		n, p := start(t, s).acquire(t), start(t, s) // acquire also creates the parents
		if !taken {
			n.Release()
		}
		tr := record(s)
		s.Freeze()
		ctx, cancel := context.WithCancel(t.Context())
		r := p.queue(ctx)
		cancel()
		wantErr(t, "Acquire", r.failed(t), context.Canceled)
		s.Unfreeze()
		need.List(t, "sent", tr.take(), "create", "getChildren2", "delete")
		n.Release()
	})
}

// When a waiting caller has left, the process keeps no watcher for it, although the node ahead and the watch on that node still exist.
func TestNobodyListensWhoHasLeft(t *testing.T) { // I10
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, other := start(t, s), start(t, s)
		n := p.acquire(t)
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			last := other.queue(ctx)
			cancel()
			last.failed(t)
		}
		synctest.Wait()
		need.Equal(t, "listeners, although no caller waits", other.Listeners(), 0)
		contended(n)
		next := other.queue(t.Context())
		n.Release()
		next.granted(t).Release()
		n = p.acquire(t)
		contended(n)
		meet(s, pushed, zktest.Drop) // drops the event of the node's own deletion, which would also end the read of the queue
		n.Release()
		synctest.Wait()
		for _, c := range []process{p, other} {
			need.Equal(t, "listeners, although the process holds nothing and does not wait", c.Listeners(), 0)
		}
	})
}

func TestWaitBehindAnotherProcessEndsWithTheContextsCauseAlone(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s).acquire(t)
		r := start(t, s).queue(within(t, time.Second))
		time.Sleep(time.Second)
		need.Equal(t, "Acquire", fmt.Sprint(r.failed(t)), "zklock: acquire "+path+": "+context.DeadlineExceeded.Error())
		n.Release()
	})
}

// A Requeue that fails early waits until its old node is gone. Otherwise the next acquisition could queue before the delete is sent.
func TestRequeueThatDoesNotBeginReturnsWhenTheNodeIsGone(t *testing.T) { // I3
	each(t, map[string]int32{"ended context": 0, "worn path": 1 << 30}, func(t *testing.T, s *zktest.Server, number int32) {
		p := start(t, s)
		p.acquire(t).Release()
		s.SetSequence(path, number)
		n := p.acquire(t)
		meet(s, func(f *zktest.Frame) bool {
			return f.Dir == zktest.Request && (f.Op == "delete" || f.First == "delete")
		}, zktest.Delay(time.Second))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		wantErr(t, "Requeue", need.ErrOf(n.Requeue(ctx)), context.Canceled)
		need.Empty(t, "returned before the node was gone", s.Children(path))
	})
}

// A wait for the end of a grant shares variables with a release that begins later. The race detector checks how both access them.
func TestWaitForTheEndOfANodeThatIsGivenUpLater(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s).acquire(t)
		waited := make(chan error, 1)
		go func() { waited <- n.AwaitRelease() }()
		time.Sleep(timeout/3 + time.Millisecond) // by then, AwaitRelease has given up
		next := need.Get(n.Requeue(t.Context()))(t)
		wantErr(t, "AwaitRelease", <-waited, nil)
		wantErr(t, "Release", next.Release(), nil)
	})
}

// An owner and a waiter in the same process may watch the same path. The client has only one watch for both, and both learn of the
// deletion.
func TestDeletedNodeIsToldToItsOwnerAndToWhoWaitsBehindItInOneProcess(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		n := p.acquire(t)
		next := p.queue(t.Context())
		awaitWatch()
		begun := time.Now()
		remove(t, raw(t, s), n.Path())
		awaitLoss(t, n)
		next.await(t)
		next.granted(t).Release()
		need.Equal(t, "noticed after", time.Since(begun), 0)
	})
}

// A read of the queue may be refused, for example by throttling. The connection then stays up, and no reconnect repeats the read, so the
// client has to.
func TestLookThatIsRefusedIsRepeated(t *testing.T) { // I7
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n, conn := start(t, s).acquire(t), raw(t, s)
		refused := strike(s, 1, is("getData", zktest.Request), func(*zktest.Frame) zktest.Action { return zktest.Throttled })
		awaitWatch()
		awaitWatch()
		need.That(t, "the process has not read the queue", refused() != "")
		remove(t, conn, n.Path())
		synctest.Wait()
		need.That(t, "the deletion is not heard of", n.Err() != nil)
	})
}

// The following tests act between two lines of code that belong together. A client calls f at that point: see attachReading. No virtual
// time may pass there, because the client holds a mutex.

// If the connection breaks between the read of the queue and the create, TryAcquire fails at once. It does not wait for the next
// connection.
func TestTryAcquireThatLosesTheConnectionBeforeItsCreateFailsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn := raw(t, s)
		p := attachReading(t, conn, sync.OnceFunc(func() {
			meet(s, func(f *zktest.Frame) bool { return f.Op == "connect" }, zktest.Cut)
			s.CutAll()
			for conn.State() == zk.StateHasSession {
				runtime.Gosched()
			}
		}))
		begun := time.Now()
		n, err := p.lock.TryAcquire(t.Context())
		wantErr(t, "TryAcquire", err, zk.ErrNoServer)
		need.Equal(t, "the node", n, nil)
		need.AtMost(t, "it failed after", time.Since(begun), 10*time.Millisecond)
	})
}

// A create may be executed under a newer session than the one for which it was sent. The client may read the node before it knows that. For
// example, it reads both znodes of a node with kazoo's format if the first read of one of them fails. It must not take the node for that of
// another process.
func TestNodeOfANewerSessionIsOursThoughSomebodyWritesToItAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		other := raw(t, s)
		// These nodes exist, because a missing parent would cause a second create under the newer session.
		put(t, other, 0, "/locks", path)
		conn := zkconn.Start(t, slices.Repeat([]string{addr}, 9), timeout, s.DialTimeout) // a long list, because the library pauses at its end
		synctest.Wait()
		p := attachReading(t, conn, sync.OnceFunc(func() {
			old := conn.SessionID()
			s.Expire(old)
			for conn.SessionID() == old || conn.State() != zk.StateHasSession {
				runtime.Gosched()
			}
		}), zknode.WithKazoo())
		creates, written := 0, false
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			switch {
			case f.Dir != zktest.Request:
			case f.Op == "multi" && f.First == "create":
				creates++
			case f.Op == "getData" && strings.Contains(f.Path, "-lock-") && !written:
				written = true
				time.AfterFunc(time.Millisecond, func() {
					wantErr(t, "Set", need.ErrOf(other.Set(pairs(t, s)[0][1], []byte("x"), -1)), nil)
				})
				return zktest.Throttled
			}
			return zktest.Pass
		})
		n := p.acquire(t)
		synctest.Wait()
		wantErr(t, "Err", n.Err(), nil)
		need.Equal(t, "creates", creates, 1)
	})
}

// down(s) makes the server unreachable: it cuts all connections and refuses new ones.
func down(s *zktest.Server) {
	s.Member(addr).Refuse()
	s.CutAll()
	synctest.Wait()
}

// A call of an earlier attempt may never return. A new attempt that waits for that call fails when the connection breaks.
func TestTryAcquireBehindAStuckCallFailsWhenTheConnectionBreaks(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		s.Freeze()
		wantErr(t, "Acquire", need.ErrOf(p.lock.Acquire(within(t, 10*time.Millisecond))), context.DeadlineExceeded)
		try := submit(func() (*zknode.Node, error) { return p.lock.TryAcquire(t.Context()) })
		if !try.waiting() {
			t.Fatalf("got %v, %v; want it to wait for the stuck call", try.node, try.err)
		}
		down(s)
		wantErr(t, "TryAcquire", try.failed(t), zk.ErrNoServer)
	})
}

// A call whose context has ended sends nothing. If the context ends while the call reads a queue, the call sends nothing after that read.
func TestNothingIsAskedForWhoHasLeft(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		holder, p := start(t, s), start(t, s)
		defer holder.acquire(t).Release()
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		holder.queue(ctx)
		synctest.Wait()
		tr := record(s)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		wantErr(t, "Acquire", need.ErrOf(p.lock.Acquire(ctx)), context.Canceled)
		wantErr(t, "TryAcquire", need.ErrOf(p.lock.TryAcquire(ctx)), context.Canceled)
		need.Empty(t, "asked", tr.take())
		ctx, cancel = context.WithCancel(t.Context())
		read := 0
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if is("getData", zktest.Request)(f) {
				read++
				cancel()
			}
			return zktest.Pass
		})
		wantErr(t, "Contenders", need.ErrOf(p.lock.Contenders(ctx)), context.Canceled)
		synctest.Wait()
		need.Equal(t, "nodes read", read, 1)
	})
}
