package zktest_test

import (
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/zktest"
)

const addr2 = "127.0.0.2:2181"

func TestFrozenMemberLosesItsClientToAnother(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn := connect(t, s, 10*time.Second, addr)
		id := conn.SessionID()
		s.Member(addr).Freeze()
		// Nobody hears of the session while its client waits for an answer to its handshake.
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := s.Sessions(); len(got) != 0 {
			t.Errorf("session outlives the silence of its member: %+v", got)
		}
		other := connect(t, s, 10*time.Second, addr2)
		if got := other.Server(); got != addr2 {
			t.Errorf("connected to %s, want %s", got, addr2)
		}
		s.Member(addr).Unfreeze()
		time.Sleep(2 * time.Minute)
		if got := conn.SessionID(); got == id || conn.State() != zk.StateHasSession {
			t.Errorf("after Unfreeze: session %#x in %v, want a new one", got, conn.State())
		}
	})
}

func TestRefusedMemberKeepsItsConnections(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn := connect(t, s, 10*time.Second, addr)
		id := conn.SessionID()
		s.Member(addr).Refuse()
		if _, err := s.DialContext(t.Context(), "tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("DialContext: got %v, want %v", err, syscall.ECONNREFUSED)
		}
		if _, _, err := conn.Get("/"); err != nil {
			t.Errorf("Get on the standing connection: %v", err)
		}
		s.Member(addr2).Cut()
		if got := s.Sessions(); got[0].Member != addr {
			t.Error("Cut of another member took the connection")
		}
		s.Member(addr).Cut()
		time.Sleep(3 * time.Second)
		if conn.State() == zk.StateHasSession {
			t.Error("client reconnected to a member that refuses")
		}
		s.Member(addr).Accept()
		time.Sleep(3 * time.Second)
		if got := conn.SessionID(); got != id || conn.State() != zk.StateHasSession {
			t.Errorf("after Accept: session %#x in %v, want %#x", got, conn.State(), id)
		}
	})
}

func TestLaggingMemberServesThePast(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		ahead, behind := connect(t, s, 10*time.Second, addr), connect(t, s, 10*time.Second, addr2)
		if _, err := ahead.Create("/old", nil, 0, everybody); err != nil {
			t.Fatal(err)
		}
		_, _, gone, err := behind.GetW("/old")
		if err != nil {
			t.Fatal(err)
		}
		s.Member(addr2).Lag()
		exists := func(path string) bool {
			t.Helper()
			ok, _, err := behind.Exists(path)
			if err != nil {
				t.Fatal(err)
			}
			return ok
		}
		if _, err := ahead.Create("/new", nil, 0, everybody); err != nil {
			t.Fatal(err)
		}
		if err := ahead.Delete("/old", -1); err != nil {
			t.Fatal(err)
		}
		if exists("/new") || !exists("/old") {
			t.Error("a lagging member shows the present")
		}
		select {
		case ev := <-gone:
			t.Errorf("a lagging member tells of the present: %+v", ev)
		default:
		}
		if _, err := behind.Sync("/"); err != nil {
			t.Fatal(err)
		}
		if ev := <-gone; ev.Type != zk.EventNodeDeleted {
			t.Errorf("event after sync: got %+v", ev)
		}
		if !exists("/new") || exists("/old") {
			t.Error("a lagging member shows the past after sync")
		}
		if _, err := ahead.Create("/newer", nil, 0, everybody); err != nil {
			t.Fatal(err)
		}
		if exists("/newer") {
			t.Error("sync ended the lag")
		}
		if _, err := behind.Create("/own", nil, 0, everybody); err != nil {
			t.Fatal(err)
		}
		if !exists("/own") || !exists("/newer") {
			t.Error("a client does not see its own write and what came before")
		}
	})
}

func TestCatchUpTellsWhatHappened(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		ahead, behind := connect(t, s, 10*time.Second, addr), connect(t, s, 10*time.Second, addr2)
		s.Member(addr2).Lag()
		_, _, made, err := behind.ExistsW("/n")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ahead.Create("/n", nil, 0, everybody); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		select {
		case ev := <-made:
			t.Fatalf("a lagging member tells of the present: %+v", ev)
		default:
		}
		s.Member(addr2).CatchUp()
		if ev := <-made; ev.Type != zk.EventNodeCreated {
			t.Errorf("event: got %+v", ev)
		}
	})
}

func TestLaggingMemberHangsUpOnClientsAheadOfIt(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		var member atomic.Value
		member.Store(addr)
		conn := dial(t, func(network, _ string, timeout time.Duration) (net.Conn, error) {
			return s.DialTimeout(network, member.Load().(string), timeout)
		}, 10*time.Second, addr)
		id := conn.SessionID()
		s.Member(addr2).Lag()
		if _, err := conn.Create("/n", nil, 0, everybody); err != nil {
			t.Fatal(err)
		}
		member.Store(addr2)
		s.Cut(id)
		time.Sleep(5 * time.Second)
		if got := s.Sessions()[0].Member; got != "" {
			t.Errorf("connected to %s, which is behind the client", got)
		}
		s.Member(addr2).CatchUp()
		time.Sleep(2 * time.Second)
		if got := s.Sessions()[0]; got.Member != addr2 || got.ID != id {
			t.Errorf("after CatchUp: got %+v, want session %#x on %s", got, id, addr2)
		}
	})
}
