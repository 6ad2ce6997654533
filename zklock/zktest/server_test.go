package zktest_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/test/locktest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/zkconn"
	"github.com/tierlock/tierlock/zklock/zktest"
)

func TestServesTCPWithItsLatency(t *testing.T) {
	s := zktest.Start(t, zktest.Config{Latency: oneWay})
	l := need.Get(s.Listen("127.0.0.1:0"))(t)
	conn := dial(t, net.DialTimeout, timeout, l.String())
	start := time.Now()
	create(t, conn, "/n", 0)
	need.AtLeast(t, "answered after", time.Since(start), 2*oneWay)
	need.Equal(t, "the member", s.Sessions()[0].Member, l.String())
	conn.Close()
	s.Close()
	if nc, err := net.Dial("tcp", l.String()); err == nil {
		nc.Close()
		t.Error("still listening after Close")
	}
}

// Close ends connections in every state. goleak, in TestMain, checks that neither the client nor the server leaves a goroutine.
func TestCloseEndsConnectionsInEveryState(t *testing.T) {
	s := zktest.NewServer(zktest.Config{})
	for _, address := range []string{addr, addr2} {
		silent := need.Get(s.DialContext(t.Context(), "tcp", address))(t) // this connection never sends anything
		t.Cleanup(func() { silent.Close() })
	}
	conn := connect(t, s, timeout, addr)
	s.Freeze()
	go conn.Create("/n", nil, 0, everybody)
	s.Close()
	s.Close()
	locktest.WantErr(t, "DialContext after Close", need.ErrOf(s.DialContext(t.Context(), "tcp", addr)), syscall.ECONNREFUSED)
	locktest.WantErr(t, "Listen after Close", need.ErrOf(s.Listen("127.0.0.1:0")), net.ErrClosed)
}

func TestServerOfATestClosesAtItsEnd(t *testing.T) {
	var s *zktest.Server
	t.Run("test", func(t *testing.T) {
		s = zktest.Start(t, zktest.Config{MaxSessionTimeout: 5 * time.Second})
		conn := connect(t, s, timeout, addr)
		need.Equal(t, "the session timeout, that of the Config,", s.Sessions()[0].Timeout, 5*time.Second)
		t.Cleanup(func() { // runs before the server is closed
			_, _, err := conn.Exists("/")
			locktest.WantErr(t, "while the test cleans up", err, nil)
		})
	})
	locktest.WantErr(t, "DialContext after the test", need.ErrOf(s.DialContext(t.Context(), "tcp", addr)), syscall.ECONNREFUSED)
}

func TestCloseWaits(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn := connect(t, s, timeout, addr)
		release := make(chan struct{})
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			<-release
			return zktest.Pass
		})
		go conn.Exists("/")
		synctest.Wait()
		closed := asked(func() error { s.Close(); return nil })
		need.That(t, "Close returned while a hook was running", len(closed) == 0)
		close(release)
		<-closed
	})
}

func TestDialContextHonoursContext(t *testing.T) {
	s := zktest.Start(t)
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	locktest.WantErr(t, "DialContext", need.ErrOf(s.DialContext(ctx, "tcp", addr)), cause)
}

func TestMisusePanics(t *testing.T) {
	var ofBubble *zktest.Server
	synctest.Test(t, func(t *testing.T) { ofBubble = zktest.NewServer(zktest.Config{}) })
	ours := zktest.Start(t)
	for want, misuse := range map[string]func(){
		"exceeds MaxSessionTimeout":     func() { zktest.Start(t, zktest.Config{MinSessionTimeout: time.Hour}) },
		"one Config":                    func() { zktest.Start(t, zktest.Config{}, zktest.Config{}) },
		"no such node":                  func() { ours.SetSequence("/none", 1) },
		"never answers with this error": func() { zktest.Error(zk.ErrNoServer) },
		"is dialed outside of it":       func() { _, _ = ofBubble.DialTimeout("tcp", addr, time.Second) },
	} {
		need.Has(t, "the panic", panicOf(misuse), want)
	}
	synctest.Test(t, func(t *testing.T) {
		text := panicOf(func() { _, _ = ours.DialContext(t.Context(), "tcp", addr) })
		need.Has(t, "the panic", text, "was made outside of the synctest bubble")
	})
}

func panicOf(f func()) (what string) {
	defer func() {
		if r := recover(); r != nil {
			what = fmt.Sprint(r)
		}
	}()
	f()
	return ""
}

// A muted direction acts like a partition. The client notices it after two thirds of the timeout, and the server after the whole timeout.
func TestMutedSessionExpiresAtItsTimeoutAndComesBackAsAnother(t *testing.T) {
	for dir, expires := range map[zktest.Direction]bool{zktest.Request: true, zktest.Reply: false} {
		bubble(t, func(t *testing.T, s *zktest.Server) {
			conn := connect(t, s, 9*time.Second, addr)
			id := conn.SessionID()
			create(t, conn, "/e", zk.FlagEphemeral)
			s.Mute(id, dir)
			time.Sleep(9*time.Second - 1)
			synctest.Wait()
			need.That(t, fmt.Sprintf("%v muted for less than the timeout: the client has a session", dir), conn.State() != zk.StateHasSession)
			need.That(t, fmt.Sprintf("%v muted for less than the timeout: the node is gone", dir), s.Exists("/e"))
			time.Sleep(1)
			synctest.Wait()
			need.Equal(t, fmt.Sprintf("%v muted for the timeout: expired", dir), !s.Exists("/e"), expires)
			time.Sleep(time.Minute)
			s.Unmute(id, dir)
			time.Sleep(2 * time.Minute)
			connected(t, conn, id, false)
		})
	}
}

func TestExpireEndsSessionAndItsNodesAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn := connect(t, s, timeout, addr)
		create(t, conn, "/2", zk.FlagEphemeral)
		create(t, conn, "/1", zk.FlagEphemeral)
		id := conn.SessionID()
		sessions := s.Sessions()
		if len(sessions) != 1 || sessions[0].ID != id || sessions[0].Timeout != timeout ||
			sessions[0].Member != addr || !slices.Equal(sessions[0].Ephemerals, []string{"/1", "/2"}) {
			t.Errorf("Sessions: got %+v", sessions)
		}
		var last []zktest.Change
		s.OnChange(func(_ zktest.View, changes []zktest.Change) { last = changes })
		before := s.Zxid()
		need.That(t, "no such session", s.Expire(id))
		want := []zktest.Change{
			{Zxid: before + 1, Op: "delete", Path: "/1", Session: id},
			{Zxid: before + 1, Op: "delete", Path: "/2", Session: id},
		}
		need.List(t, "changes", last, want...)
		need.That(t, "Expire found the session again", !s.Expire(id))
		time.Sleep(2 * time.Second) // in this time, the client tries all its addresses, waits a second, and requests a new session
		connected(t, conn, id, false)
	})
}

func TestCutKeepsTheSession(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn := connect(t, s, timeout, addr)
		id := conn.SessionID()
		need.That(t, "Cut finds no connection", s.Cut(id))
		need.That(t, "Cut finds a connection again", !s.Cut(id))
		synctest.Wait()
		connected(t, conn, id, true)
	})
}

func TestFrozenServerExpiresTheOverdueAndHandlesTheRestWhenItContinues(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		short, long := connect(t, s, 6*time.Second, addr), connect(t, s, 40*time.Second, addr)
		first, second := short.SessionID(), long.SessionID()
		s.Freeze()
		answer := creating(long, "/n")
		time.Sleep(20 * time.Second)
		need.Equal(t, "sessions while it is frozen", len(s.Sessions()), 2)
		need.That(t, "a request is applied while it is frozen", !s.Exists("/n"))
		s.Unfreeze()
		sessions := s.Sessions()
		need.That(t, fmt.Sprintf("after Unfreeze: got %+v, want only %#x", sessions, second), len(sessions) == 1 && sessions[0].ID == second)
		locktest.WantErr(t, "Create", <-answer, nil)
		time.Sleep(3 * time.Minute) // a client's handshake with a mute server ends after 6.67 timeouts
		connected(t, short, first, false)
		connected(t, long, second, true)
	})
}

func TestSequenceSticksAtItsEnd(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn := connect(t, s, timeout, addr)
		create(t, conn, "/q", 0)
		s.SetSequence("/q", 1<<31-2)
		for _, want := range []string{"/q/a2147483646", "/q/a2147483647", "/q/b2147483647"} {
			path := want[:len("/q/a")]
			need.Equal(t, "created as "+path, need.Get(conn.Create(path, nil, zk.FlagSequence, everybody))(t), want)
		}
		locktest.WantErr(t, "Create of the same name", need.ErrOf(conn.Create("/q/a", nil, zk.FlagSequence, everybody)), zk.ErrNodeExists)
	})
}

func TestWatchesAreCountedUntilTheConnectionEnds(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn := connect(t, s, timeout, addr)
		for range 2 { // the second time adds no watch on the server
			for _, path := range []string{"/", "/none"} {
				_, _, _, err := conn.ExistsW(path)
				need.OK(t, err)
			}
			_, _, _, err := conn.ChildrenW("/")
			need.OK(t, err)
		}
		need.Equal(t, "Watches", s.Watches(), 3)
		s.Member(addr).Refuse()
		s.CutAll()
		need.Equal(t, "Watches after CutAll", s.Watches(), 0)
	})
}

func TestOnChangeSeesEachTransactionWhole(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn := connect(t, s, timeout, addr)
		create(t, conn, "/n", 0)
		var ops []string
		s.OnChange(func(v zktest.View, changes []zktest.Change) {
			for _, c := range changes {
				ops = append(ops, c.Op)
			}
			data, stat, ok := v.Get("/n")
			need.That(t, fmt.Sprintf("view of %d: got %q, %+v, %t", v.Zxid(), data, stat, ok), ok && string(data) == "new" && stat.Mzxid == v.Zxid())
			need.List(t, "children in the view", v.Children("/n"), "kid")
			need.That(t, "a child in the view is not there", v.Exists("/n/kid"))
		})
		need.Get(conn.Multi(
			&zk.CreateRequest{Path: "/n/kid", Acl: everybody},
			&zk.CreateRequest{Path: "/n/other", Acl: everybody},
			&zk.SetDataRequest{Path: "/n", Data: []byte("new")},
			&zk.DeleteRequest{Path: "/n/other"},
		))(t)
		need.List(t, "changes", ops, "create", "create", "setData", "delete")
	})
}

func TestDroppedHandshakeIsNeverAnswered(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		var dials atomic.Int32
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			dials.Add(1)
			return zktest.Drop
		})
		conn, events, err := zk.Connect([]string{addr, addr}, 3*time.Second, zk.WithDialer(s.DialTimeout), zk.WithLogger(zkconn.Silent{}))
		need.OK(t, err)
		const patience = 20 * time.Second // the client waits for a handshake for ten times two thirds of its timeout
		time.Sleep(patience - 1)
		need.Equal(t, "handshakes within the client's patience", dials.Load(), 1)
		time.Sleep(time.Minute)
		need.That(t, "client never tried again", dials.Load() >= 2)
		conn.Close()
		s.Close()
		for range events {
		}
	})
}
