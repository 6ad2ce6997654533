package zknode_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/waittest"
	"github.com/tierlock/tierlock/internal/test/zkconn"
	"github.com/tierlock/tierlock/internal/zknode"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// attach returns a process that uses a connection of the program.
func attach(t *testing.T, s *zktest.Server) (process, *zk.Conn) {
	t.Helper()
	conn := raw(t, s)
	return attachTo(t, conn), conn
}

func attachTo(t *testing.T, conn *zk.Conn, opts ...zknode.Option) process {
	t.Helper()
	return attached(t, conn, need.Get(zknode.Attach(conn, append(opts, zknode.WithSessionTimeout(timeout))...))(t))
}

// attachReading returns a process that uses conn. It calls f each time after the client has read the session ID of conn.
func attachReading(t *testing.T, conn *zk.Conn, f func(), opts ...zknode.Option) process {
	t.Helper()
	return attached(t, conn, need.Get(zknode.AttachReading(conn, f, append(opts, zknode.WithSessionTimeout(timeout))...))(t))
}

func attached(t *testing.T, conn *zk.Conn, c *zknode.Client) process {
	t.Helper()
	t.Cleanup(func() { c.Close() })
	return process{c, lockAt(t, c, path), conn.SessionID()}
}

// Reads without a watch, and failed reads, have no event to wait for. The client must not leave a goroutine waiting for each of them.
func TestAttachedLooksWithoutAWatchLeaveNoGoroutine(t *testing.T) { // I10
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, _ := attach(t, s)
		n := p.acquire(t)
		synctest.Wait()
		const own = 5 // goroutines that the runtime and other tests may start in the meantime
		goroutines := runtime.NumGoroutine() + own
		for range 10 * own {
			wantErr(t, "TryAcquire", need.ErrOf(p.lock.TryAcquire(t.Context())), second.ErrLocked)
		}
		synctest.Wait()
		need.AtMost(t, "goroutines", runtime.NumGoroutine(), goroutines)
		meet(s, is("getChildren2", zktest.Request), zktest.Error(zk.ErrNoAuth))
		contended(n)
		goroutines = runtime.NumGoroutine() + own
		time.Sleep(10 * time.Minute) // in this time, the queue is read many times
		synctest.Wait()
		need.AtMost(t, "goroutines after looks that failed", runtime.NumGoroutine(), goroutines)
		wantErr(t, "Release", n.Release(), nil)
	})
}

func TestAttachedAcquiresInSoManyRoundTrips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const trip = 20 * time.Millisecond
		s := zktest.Start(t, zktest.Config{Latency: trip / 2})
		p, _ := attach(t, s)
		for _, c := range []struct {
			what string
			want time.Duration
		}{{"on a path of two nodes that is missing", 2 + 3 + 2}, {"on a path that is there", 2}} {
			begun := time.Now()
			n := p.acquire(t)
			need.Equal(t, "it took "+c.what, time.Since(begun), c.want*trip)
			wantErr(t, "Release", n.Release(), nil)
		}
	})
}

// Over a connection of the program, a request cannot be cancelled. A waiter that has left still has to disappear from the queue soon.
func TestAttachedWaiterWhoHasLeftIsGoneSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const trip = 20 * time.Millisecond
		s := zktest.Start(t, zktest.Config{Latency: trip / 2})
		n := start(t, s).acquire(t)
		p, _ := attach(t, s)
		ctx, leave := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, leave)
		wantErr(t, "Acquire", need.ErrOf(p.lock.Acquire(ctx)), context.Canceled)
		time.Sleep(3 * trip / 2)
		need.Equal(t, "nodes in the queue", len(s.Children(path)), 1)
		wantErr(t, "Release", n.Release(), nil)
	})
}

func TestAttachedChecksItsOptions(t *testing.T) {
	wantMention(t, need.ErrOf(zknode.Attach(nil, zknode.WithSessionTimeout(-1))), "session timeout")
}

// A disconnect alone does not end a lock that was acquired over a connection of the program.
func TestAttachedLockOutlivesADisconnect(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, _ := attach(t, s)
		n := p.acquire(t)
		s.Member(addr).Refuse()
		s.Cut(p.session)
		synctest.Wait()
		wantErr(t, "Client.Err", p.Err(), zk.ErrNoServer)
		wantErr(t, "Err", n.Err(), nil)
		s.Member(addr).Accept()
		<-time.After(timeout / 2) // in virtual time
		wantErr(t, "Client.Err", p.Err(), nil)
		wantErr(t, "Release", n.Release(), nil)
		wantEmpty(t, s)
	})
}

func TestAttachedReleaseDoesNotOutliveItsClient(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, _ := attach(t, s)
		n := p.acquire(t)
		s.Freeze()
		released := make(chan error, 1)
		go func() { released <- n.Release() }()
		synctest.Wait()
		began := time.Now()
		var closing sync.WaitGroup
		closing.Go(func() { p.Close() })
		wantErr(t, "Release", <-released, second.ErrClosed)
		wantWithin(t, 0, "Release", began)
		closing.Wait()
	})
}

func TestAttachedLockOfAClosedClientIsNotCertainAndNobodyIsAsked(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, _ := attach(t, s)
		n := p.acquire(t)
		p.Close()
		tr, begun := record(s), time.Now()
		if certain := n.Confirm(); certain || time.Since(begun) > 0 || len(tr.take()) > 0 {
			t.Errorf("certain: %t, after %v", certain, time.Since(begun))
		}
	})
}

func TestAttachedCloseEndsEveryTaskAndNotTheConnection(t *testing.T) { // I10
	bubble(t, func(t *testing.T, s *zktest.Server) {
		holder := start(t, s)
		barrier := holder.acquire(t)
		p, conn := attach(t, s)
		waiter := p.queue(t.Context())
		other := lockAt(t, p.Client, "/locks/y")
		n := acquire(t, other)
		n.Contended() // sets one more watch, on a node that still exists at the end
		synctest.Wait()
		began := time.Now()
		wantErr(t, "Close", p.Close(), nil)
		wantWithin(t, time.Second, "Close", began)
		wantErr(t, "waiter", waiter.failed(t), second.ErrClosed)
		wantErr(t, "Err", n.Err(), second.ErrLost)
		_, _, err := conn.Exists("/")
		wantErr(t, "the connection after Close", err, nil)
		wantErr(t, "Release", barrier.Release(), nil)
	})
}

func TestAttachedClientEndsWithItsConnection(t *testing.T) {
	each(t, map[string]bool{"answered": false, "unanswered": true}, func(t *testing.T, s *zktest.Server, freeze bool) {
		holder := start(t, s)
		barrier := holder.acquire(t)
		p, conn := attach(t, s)
		waiter := p.queue(t.Context())
		if freeze {
			s.Freeze()
		}
		began := time.Now()
		go conn.Close()
		waittest.Ended(t, "the end of the connection is noticed", p.Done())
		wantWithin(t, 100*time.Millisecond, "to hear of the end of the connection", began)
		wantErr(t, "waiter", waiter.failed(t), second.ErrClosed)
		wantErr(t, "Acquire over a closed connection", need.ErrOf(p.lock.Acquire(t.Context())), second.ErrClosed)
		wantErr(t, "Err", p.Err(), second.ErrClosed)
		s.Unfreeze()
		wantErr(t, "Release", barrier.Release(), nil)
	})
}

// While the client polls for the end of the connection, it sends nothing. At the end, the bubble fails the test if a goroutine is left.
func TestPollingForACloseSendsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, conn := attach(t, s)
		tr := record(s)
		for range 2 {
			leave, leaveToo := p.PollClose(), p.PollClose()
			leave()
			<-time.After(time.Minute) // in virtual time
			leaveToo()
		}
		need.Empty(t, "sent", tr.take())
		conn.Close()
		<-time.After(time.Minute) // in virtual time
		need.That(t, "the connection was checked, although the process holds nothing and does not wait", !closed(p.Done()))
		defer p.PollClose()()
		<-time.After(101 * time.Millisecond) // in virtual time
		need.That(t, "the end of the connection was not noticed", closed(p.Done()))
	})
}

// A connection that breaks again and again does not count as closed. That is so even if it breaks before any answer, or if the client
// library takes long to choose a server.
func TestAttachedClientOutlivesAFlappingConnection(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		servers := &slowServers{}
		conn, events, err := zk.Connect([]string{addr, addr}, timeout, zk.WithDialer(s.DialTimeout),
			zk.WithLogger(zkconn.Silent{}), zk.WithLogInfo(false), zk.WithHostProvider(servers))
		need.OK(t, err)
		t.Cleanup(func() {
			conn.Close()
			for range events { // closing events is the last thing that the client library does
			}
		})
		for conn.State() != zk.StateHasSession {
			<-time.After(time.Millisecond) // in virtual time
		}
		p := attachTo(t, conn)
		var cuts atomic.Int32
		meet(s, func(f *zktest.Frame) bool { return f.Op != "connect" && f.Dir == zktest.Request && cuts.Add(1) <= 20 }, zktest.Cut)
		s.Cut(p.session)
		synctest.Wait() // now it is disconnected, and the client library is choosing a server
		n := need.Get(p.lock.Acquire(within(t, time.Minute)))(t)
		need.AtLeast(t, "requests, more than the ones that were cut off", cuts.Load(), 21)
		wantErr(t, "Release", n.Release(), nil)
	})
}

// slowServers is a list of servers that takes time to return the next server, like a list that resolves names again each time.
type slowServers struct{ zk.DNSHostProvider }

func (p *slowServers) Next() (string, bool) {
	<-time.After(100 * time.Millisecond) // in virtual time
	server, _ := p.DNSHostProvider.Next()
	return server, false
}

// A client checks whether the program has closed the connection, but only while it holds something.
func TestItIsAskedForACloseAsLongAsSomethingIsHeld(t *testing.T) {
	each(t, map[string]func(t *testing.T, p process) (end func()){
		"a lock": func(t *testing.T, p process) func() {
			n := p.acquire(t)
			return func() { n.Release() }
		},
		"permits, for which a turn was traded": func(t *testing.T, p process) func() {
			sem := p.of(t, 2)
			permits := take(t, sem, 2).taken(t)
			return func() { sem.Release(permits) }
		},
	}, func(t *testing.T, s *zktest.Server, hold func(*testing.T, process) (end func())) {
		p, conn := attach(t, s)
		end := hold(t, p)
		go conn.Close()
		<-time.After(101 * time.Millisecond) // in virtual time
		need.That(t, "the close was not noticed, though something is held", closed(p.Done()))
		end()
		p, conn = attach(t, s)
		hold(t, p)()
		synctest.Wait() // now the check has stopped
		conn.Close()
		<-time.After(time.Minute) // in virtual time
		need.That(t, "the connection was checked, although the process holds nothing", !closed(p.Done()))
	})
}

func TestAttachedLockIsLostWithTheSession(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, conn := attach(t, s)
		n := p.acquire(t)
		s.Expire(p.session)
		awaitLoss(t, n)
		wantErr(t, "Err", n.Err(), second.ErrLost)
		wantErr(t, "Release", n.Release(), second.ErrLost)
		need.That(t, "the session after the loss is the same", conn.SessionID() != p.session)
		wantErr(t, "Release", p.acquire(t).Release(), nil)
		wantEmpty(t, s)
	})
}

// The function undead makes the client believe that its session has expired, although the session still exists on the server.
func undead(t *testing.T, s *zktest.Server, p process, conn *zk.Conn) {
	t.Helper()
	meet(s, func(f *zktest.Frame) bool {
		return f.Op == "connect" && f.Session == p.session && f.Dir == zktest.Request
	}, zktest.Error(zk.ErrSessionExpired))
	s.Cut(p.session)
	for end := time.Now().Add(time.Hour); conn.SessionID() == p.session || conn.State() != zk.StateHasSession; {
		need.Must(t, "the session never changed", !time.Now().After(end))
		<-time.After(time.Millisecond) // in virtual time
	}
}

// A change of the session ID alone shows the loss, without a message from the server. A holder that does not check learns of the loss when
// the client first uses the new session.
func TestAttachedLockIsLostWhenTheSessionIdHasChanged(t *testing.T) {
	each(t, map[string]func(*testing.T, *zktest.Server, process, *zknode.Node){
		"asked before": func(t *testing.T, s *zktest.Server, _ process, n *zknode.Node) {
			s.Freeze()
			wantErr(t, "Err", n.Err(), second.ErrLost)
		},
		"found by the release": func(_ *testing.T, s *zktest.Server, _ process, _ *zknode.Node) { s.Freeze() },
		"told by the next acquisition": func(t *testing.T, _ *zktest.Server, p process, n *zknode.Node) {
			p.acquireAt(t, "/locks/y")
			need.That(t, "Lost is open under a session that was given up", closed(n.Lost()))
		},
	}, func(t *testing.T, s *zktest.Server, notice func(*testing.T, *zktest.Server, process, *zknode.Node)) {
		p, conn := attach(t, s)
		n := p.acquire(t)
		undead(t, s, p, conn)
		notice(t, s, p, n)
		wantErr(t, "Release", n.Release(), second.ErrLost)
		s.Unfreeze()
	})
}

// A goroutine may be delayed after it has read the session ID. The old ID must not replace a newer one.
func TestAttachedSessionIsNotReplacedByAnOlderOne(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn := raw(t, s)
		var reads atomic.Int32
		reached, goOn := make(chan struct{}), make(chan struct{})
		p := attachReading(t, conn, func() {
			if reads.Add(1) == 1 {
				close(reached)
				<-goOn
			}
		})
		var late sync.WaitGroup
		late.Go(p.LookForSession)
		<-reached
		undead(t, s, p, conn)
		acquired := make(chan *zknode.Node, 1)
		go func() { acquired <- p.acquire(t) }()
		for range 100_000 { // acquire may have to wait for the delayed goroutine, and synctest.Wait does not wait for a mutex
			if runtime.Gosched(); len(acquired) > 0 {
				break
			}
		}
		close(goOn)
		late.Wait()
		wantErr(t, "Release", (<-acquired).Release(), nil)
	})
}

func TestLockIsLostWithItsNodeAtOnce(t *testing.T) {
	each(t, map[string]int{"deleted": 0, "written to, then deleted": 1, "written to twice, then deleted": 2},
		func(t *testing.T, s *zktest.Server, writes int) {
			attached, _ := attach(t, s)
			for _, p := range []process{attached, start(t, s)} {
				n, other := p.acquire(t), raw(t, s)
				awaitWatch()
				for range writes { // each write triggers the watch once
					need.Get(other.Set(n.Path(), []byte("revoke"), -1))(t)
					synctest.Wait()
				}
				wantErr(t, "Err before", n.Err(), nil)
				remove(t, other, n.Path())
				deleted := time.Now()
				awaitLoss(t, n)
				need.Equal(t, "the loss was noticed after", time.Since(deleted), 0)
				wantErr(t, "Release", n.Release(), second.ErrLost)
			}
		})
}

// Without a lease, only the server knows whether the lock is still held. If the server cannot be asked, the error of Requeue says so.
func TestAttachedRequeueSaysWhenItIsNotKnownWhetherTheLockWasOurs(t *testing.T) {
	type row struct {
		trouble func(*zktest.Server)
		want    error
	}
	each(t, map[string]row{
		"no server": {down, zk.ErrNoServer},
		"its answer lost": {func(s *zktest.Server) {
			strike(s, 1, is("multi", zktest.Reply), func(*zktest.Frame) zktest.Action {
				s.Member(addr).Refuse()
				return zktest.Cut
			})
		}, zk.ErrConnectionClosed},
	}, func(t *testing.T, s *zktest.Server, c row) {
		p, _ := attach(t, s)
		n := p.acquire(t)
		c.trouble(s)
		ctx, cancel := context.WithCancel(t.Context())
		begun := time.Now()
		again := submit(func() (*zknode.Node, error) { return n.Requeue(ctx) })
		wantErr(t, "AwaitRelease", n.AwaitRelease(), c.want)
		need.Equal(t, "it took", time.Since(begun), 0)
		cancel()
		wantErr(t, "Requeue", again.failed(t), context.Canceled)
	})
}

// The event of the deletion may have reached the watch, but not the lock yet. A release at that moment returns the loss.
func TestReleaseKnowsOfADeletionThatHasJustBeenHeardOf(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		attached, _ := attach(t, s)
		for _, p := range []process{attached, start(t, s)} {
			n := p.acquire(t)
			n.HearOfItsEnd()
			wantErr(t, "Release", n.Release(), second.ErrLost)
			s.Expire(p.session) // deletes the node; the process has not got the event yet
		}
	})
}
