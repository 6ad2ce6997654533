package zktest_test

import (
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/test/locktest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/zklock/zktest"
)

func TestFrozenMemberLosesItsClientToAnother(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn := connect(t, s, timeout, addr)
		id := conn.SessionID()
		s.Member(addr).Freeze()
		// While a client waits for the answer to its handshake, it sends nothing, and the session expires.
		time.Sleep(timeout)
		synctest.Wait()
		need.Empty(t, "sessions after the silence of their member", s.Sessions())
		other := connect(t, s, timeout, addr2)
		need.Equal(t, "connected to", other.Server(), addr2)
		s.Member(addr).Unfreeze()
		time.Sleep(2 * time.Minute)
		connected(t, conn, id, false)
	})
}

func TestRefusedMemberKeepsItsConnections(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn := connect(t, s, timeout, addr)
		id := conn.SessionID()
		s.Member(addr).Refuse()
		locktest.WantErr(t, "DialContext", need.ErrOf(s.DialContext(t.Context(), "tcp", addr)), syscall.ECONNREFUSED)
		_, _, err := conn.Get("/")
		locktest.WantErr(t, "Get on the standing connection", err, nil)
		s.Member(addr2).Cut()
		need.That(t, "Cut of another member took the connection", s.Sessions()[0].Member == addr)
		s.Member(addr).Cut()
		time.Sleep(3 * time.Second)
		need.That(t, "client reconnected to a member that refuses", conn.State() != zk.StateHasSession)
		s.Member(addr).Accept()
		time.Sleep(3 * time.Second)
		connected(t, conn, id, true)
	})
}

func TestLaggingMemberServesThePast(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		ahead, behind := connect(t, s, timeout, addr), connect(t, s, timeout, addr2)
		shows := func(when, path string, want bool) {
			t.Helper()
			got, _, err := behind.Exists(path)
			need.That(t, fmt.Sprintf("%s: %s is there: %t, %v; want %t", when, path, got, err, want), got == want && err == nil)
		}
		watch := func(path string) <-chan zk.Event {
			t.Helper()
			_, _, events, err := behind.ExistsW(path)
			need.OK(t, err)
			return events
		}
		create(t, ahead, "/old", 0)
		gone := watch("/old")
		s.Member(addr2).Lag()
		create(t, ahead, "/new", 0)
		need.OK(t, ahead.Delete("/old", -1))
		shows("lagging", "/new", false)
		shows("lagging", "/old", true)
		need.Equal(t, "events by which a lagging member tells of the present", len(gone), 0)
		need.Get(behind.Sync("/"))(t)
		need.Equal(t, "the event after sync", (<-gone).Type, zk.EventNodeDeleted)
		shows("after sync", "/new", true)
		shows("after sync", "/old", false)
		create(t, ahead, "/newer", 0)
		shows("after sync", "/newer", false)
		create(t, behind, "/own", 0)
		shows("after its own write", "/own", true)
		shows("after its own write", "/newer", true)
		made := watch("/last")
		create(t, ahead, "/last", 0)
		synctest.Wait()
		need.Equal(t, "events by which a lagging member tells of the present", len(made), 0)
		s.Member(addr2).CatchUp()
		need.Equal(t, "the event after CatchUp", (<-made).Type, zk.EventNodeCreated)
	})
}

func TestLaggingMemberHangsUpOnClientsAheadOfIt(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		var member atomic.Value
		member.Store(addr)
		conn := dial(t, func(network, _ string, timeout time.Duration) (net.Conn, error) {
			return s.DialTimeout(network, member.Load().(string), timeout)
		}, timeout, addr)
		id := conn.SessionID()
		s.Member(addr2).Lag()
		create(t, conn, "/n", 0)
		member.Store(addr2)
		s.Cut(id)
		time.Sleep(5 * time.Second)
		need.Equal(t, "connected, though that is behind the client, to", s.Sessions()[0].Member, "")
		s.Member(addr2).CatchUp()
		time.Sleep(2 * time.Second)
		got := s.Sessions()[0]
		need.That(t, fmt.Sprintf("after CatchUp: got %+v, want session %#x on %s", got, id, addr2), got.Member == addr2 && got.ID == id)
	})
}

const tick = 500 * time.Millisecond

// ticking runs f with an ensemble whose leader pings its followers. It has a client with a node /e. The channel gone receives the time at
// which that node is deleted because the session has ended.
func ticking(t *testing.T, f func(t *testing.T, s *zktest.Server, conn *zk.Conn, gone <-chan time.Time)) {
	t.Helper()
	bubble(t, func(t *testing.T, s *zktest.Server) {
		gone := make(chan time.Time, 1)
		s.OnChange(func(_ zktest.View, changes []zktest.Change) {
			for _, c := range changes {
				if c.Op == "delete" && c.Path == "/e" {
					gone <- time.Now()
				}
			}
		})
		conn := connect(t, s, 4*time.Second, addr)
		create(t, conn, "/e", zk.FlagEphemeral)
		f(t, s, conn, gone)
	}, zktest.Config{Tick: tick})
}

// A member that is cut off from the leader still answers reads from old data. The leader does not hear of the sessions there, and they
// expire.
func TestIsolatedMemberAnswersReadsFromThePastWhileItsSessionsExpire(t *testing.T) {
	ticking(t, func(t *testing.T, s *zktest.Server, inside *zk.Conn, gone <-chan time.Time) {
		outside := connect(t, s, timeout, addr2)
		time.Sleep(tick/2 + 1) // the leader has just heard of the create
		s.Member(addr).Isolate()
		cut := time.Now()
		create(t, outside, "/new", 0)
		time.Sleep(2 * time.Second)
		for path, want := range map[string]bool{"/e": true, "/new": false} {
			got, _, err := inside.Exists(path)
			need.That(t, fmt.Sprintf("%s on the isolated member: %t, %v; want %t", path, got, err, want), got == want && err == nil)
		}
		write := creating(inside, "/n")
		s.Member(addr).Glimpse(1) // lets the write through, but not the report
		locktest.WantErr(t, "a create that the member has let through", <-write, nil)
		need.Equal(t, "the session expired, after the cut, after", (<-gone).Sub(cut), 4*time.Second-1)
	})
}

func TestIsolatedMemberForwardsItsWritesInOrderWhenItRejoins(t *testing.T) {
	ticking(t, func(t *testing.T, s *zktest.Server, conn *zk.Conn, _ <-chan time.Time) {
		s.Member(addr).Isolate()
		made := creating(conn, "/n")
		set := asked(func() error { _, err := conn.Set("/n", []byte("x"), 0); return err })
		read := asked(func() error { _, _, err := conn.Get("/n"); return err })
		time.Sleep(2 * tick)
		synctest.Wait()
		need.That(t, "answered without a leader", len(made)+len(set)+len(read) == 0 && !s.Exists("/n"))
		s.Member(addr).Rejoin()
		for _, answer := range []<-chan error{made, set, read} {
			locktest.WantErr(t, "the request to the isolated member", <-answer, nil)
		}
	})
}

func TestIsolatedMemberGivesItsClientsUpAfterFiveTicks(t *testing.T) {
	ticking(t, func(t *testing.T, s *zktest.Server, _ *zk.Conn, _ <-chan time.Time) {
		conn := connect(t, s, timeout, addr)
		s.Member(addr).Isolate()
		time.Sleep(5*tick - 1)
		need.That(t, "given up too early", conn.State() == zk.StateHasSession)
		time.Sleep(2)
		synctest.Wait()
		need.That(t, "not given up", conn.State() != zk.StateHasSession)
		s.Member(addr).Rejoin()
		time.Sleep(3 * time.Second)
		need.That(t, "no clients after the member has rejoined", conn.State() == zk.StateHasSession)
	})
}

func TestLeaderHearsOfASessionWhenItPingsTheFollower(t *testing.T) {
	ticking(t, func(t *testing.T, s *zktest.Server, conn *zk.Conn, gone <-chan time.Time) {
		time.Sleep(tick/2 - 1) // at this time, a ping is due
		_, _, err := conn.Exists("/e")
		need.OK(t, err)
		asked := time.Now()
		time.Sleep(1)
		s.Mute(conn.SessionID(), zktest.Request)
		need.Equal(t, "expired after the last request, by the timeout after the ping, after", (<-gone).Sub(asked), 4*time.Second+1)
	})
}

func TestDeposedLeaderAnswersWhatItNeedsNobodyFor(t *testing.T) {
	ticking(t, func(t *testing.T, s *zktest.Server, conn *zk.Conn, gone <-chan time.Time) {
		time.Sleep(2 * time.Second)
		s.Member(addr).Depose()
		locktest.WantErr(t, "Sync", need.ErrOf(conn.Sync("/e")), nil)
		set := asked(func() error { _, err := conn.Set("/e", nil, -1); return err })
		time.Sleep(2 * time.Second)
		need.Equal(t, "writes that were answered", len(set), 0)
		time.Sleep(2*time.Second - 1)
		need.That(t, "the new leader's clocks did not start again", len(gone) == 0)
		time.Sleep(2)
		need.That(t, "the new leader counts what the old leader hears", len(gone) != 0)
		s.Member(addr).Rejoin()
		<-set
		time.Sleep(time.Second)
	})
}
