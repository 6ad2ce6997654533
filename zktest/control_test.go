package zktest_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/zktest"
)

func TestExpireEndsSessionAndItsNodesAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn := connect(t, s, 10*time.Second, addr)
		for _, path := range []string{"/2", "/1"} {
			if _, err := conn.Create(path, nil, zk.FlagEphemeral, everybody); err != nil {
				t.Fatal(err)
			}
		}
		id := conn.SessionID()
		sessions := s.Sessions()
		if len(sessions) != 1 || sessions[0].ID != id || sessions[0].Timeout != 10*time.Second ||
			sessions[0].Member != addr || !slices.Equal(sessions[0].Ephemerals, []string{"/1", "/2"}) {
			t.Errorf("Sessions: got %+v", sessions)
		}
		var last []zktest.Change
		s.OnChange(func(_ zktest.View, changes []zktest.Change) { last = changes })
		before := s.Zxid()
		if !s.Expire(id) {
			t.Fatalf("Expire(%#x): no such session", id)
		}
		want := []zktest.Change{
			{Zxid: before + 1, Op: "delete", Path: "/1", Session: id},
			{Zxid: before + 1, Op: "delete", Path: "/2", Session: id},
		}
		if !slices.Equal(last, want) {
			t.Errorf("changes: got %+v, want %+v", last, want)
		}
		if s.Expire(id) {
			t.Error("Expire found the session again")
		}
		time.Sleep(2 * time.Second) // the client tries all its addresses, waits a second and starts afresh
		if now := conn.SessionID(); now == id || now == 0 {
			t.Errorf("client in session %#x, want a new one", now)
		}
	})
}

func TestCutKeepsTheSession(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn := connect(t, s, 10*time.Second, addr)
		id := conn.SessionID()
		if !s.Cut(id) {
			t.Fatal("Cut found no connection")
		}
		if s.Cut(id) {
			t.Error("Cut found a connection twice")
		}
		synctest.Wait()
		if got := conn.SessionID(); got != id || conn.State() != zk.StateHasSession {
			t.Errorf("after the cut: session %#x in %v, want %#x", got, conn.State(), id)
		}
	})
}

// A muted direction is a partition: the client notices after two thirds of the timeout, the server after all of it.
func TestMutedSessionExpiresAndComesBackAsAnother(t *testing.T) {
	for _, dir := range []zktest.Direction{zktest.Request, zktest.Reply} {
		bubble(t, func(t *testing.T, s *zktest.Server) {
			conn := connect(t, s, 9*time.Second, addr)
			id := conn.SessionID()
			s.Mute(id, dir)
			time.Sleep(7 * time.Second)
			if conn.State() == zk.StateHasSession {
				t.Errorf("direction %d muted: client still believes in its session", dir)
			}
			time.Sleep(time.Minute)
			if dir == zktest.Request && len(s.Sessions()) != 0 {
				t.Errorf("muted session lives on")
			}
			s.Unmute(id, dir)
			time.Sleep(2 * time.Minute)
			if conn.State() != zk.StateHasSession {
				t.Errorf("direction %d unmuted: client in %v", dir, conn.State())
			}
			if dir == zktest.Request && conn.SessionID() == id {
				t.Errorf("session %#x is back from the dead", id)
			}
		})
	}
}

func TestFrozenServerExpiresTheOverdueWhenItContinues(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		short, long := connect(t, s, 6*time.Second, addr), connect(t, s, 30*time.Second, addr)
		first, second := short.SessionID(), long.SessionID()
		s.Freeze()
		time.Sleep(20 * time.Second)
		if got := len(s.Sessions()); got != 2 {
			t.Errorf("frozen server expired sessions: %d left, want 2", got)
		}
		s.Unfreeze()
		sessions := s.Sessions()
		if len(sessions) != 1 || sessions[0].ID != second {
			t.Errorf("after Unfreeze: got %+v, want only %#x", sessions, second)
		}
		time.Sleep(3 * time.Minute) // a client's handshake with a mute server ends after 6.67 timeouts
		if got := short.SessionID(); got == first || short.State() != zk.StateHasSession {
			t.Errorf("client of the expired session: %#x in %v", got, short.State())
		}
		if got := long.SessionID(); got != second || long.State() != zk.StateHasSession {
			t.Errorf("client of the other session: %#x in %v, want %#x", got, long.State(), second)
		}
	})
}

func TestRequestsToFrozenServerAreHandledWhenItContinues(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn := connect(t, s, 10*time.Second, addr)
		s.Freeze()
		done := make(chan error, 1)
		go func() {
			_, err := conn.Create("/n", nil, 0, everybody)
			done <- err
		}()
		time.Sleep(time.Second)
		if s.Exists("/n") {
			t.Error("a frozen server applied a request")
		}
		s.Unfreeze()
		if err := <-done; err != nil {
			t.Errorf("Create: %v", err)
		}
	})
}

func TestSequenceSticksAtItsEnd(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn := connect(t, s, 10*time.Second, addr)
		if _, err := conn.Create("/q", nil, 0, everybody); err != nil {
			t.Fatal(err)
		}
		s.SetSequence("/q", 1<<31-2)
		for i, want := range []string{"/q/a2147483646", "/q/a2147483647", "/q/b2147483647"} {
			path := "/q/a"
			if i == 2 {
				path = "/q/b"
			}
			if got, err := conn.Create(path, nil, zk.FlagSequence, everybody); got != want || err != nil {
				t.Errorf("Create(%q): got %q, %v, want %q", path, got, err, want)
			}
		}
		if _, err := conn.Create("/q/a", nil, zk.FlagSequence, everybody); !errors.Is(err, zk.ErrNodeExists) {
			t.Errorf("Create of the same name: got %v, want %v", err, zk.ErrNodeExists)
		}
	})
}

func TestWatchesAreCountedUntilTheConnectionEnds(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn := connect(t, s, 10*time.Second, addr)
		for range 2 { // the second time adds nothing at the server
			for _, path := range []string{"/", "/none"} {
				if _, _, _, err := conn.ExistsW(path); err != nil {
					t.Fatal(err)
				}
			}
			if _, _, _, err := conn.ChildrenW("/"); err != nil {
				t.Fatal(err)
			}
		}
		if got := s.Watches(); got != 3 {
			t.Errorf("Watches: got %d, want 3", got)
		}
		s.Member(addr).Refuse()
		s.CutAll()
		if got := s.Watches(); got != 0 {
			t.Errorf("Watches after CutAll: got %d, want 0", got)
		}
	})
}

func TestOnChangeSeesEachTransactionWhole(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn := connect(t, s, 10*time.Second, addr)
		if _, err := conn.Create("/n", []byte("old"), 0, everybody); err != nil {
			t.Fatal(err)
		}
		var ops []string
		s.OnChange(func(v zktest.View, changes []zktest.Change) {
			for _, c := range changes {
				ops = append(ops, c.Op)
			}
			if data, stat, ok := v.Get("/n"); !ok || string(data) != "new" || stat.Mzxid != v.Zxid() {
				t.Errorf("view of %d: got %q, %+v, %t", v.Zxid(), data, stat, ok)
			}
			if got := v.Children("/n"); !slices.Equal(got, []string{"kid"}) || !v.Exists("/n/kid") {
				t.Errorf("view: children %q", got)
			}
		})
		_, err := conn.Multi(
			&zk.CreateRequest{Path: "/n/kid", Acl: everybody},
			&zk.CreateRequest{Path: "/n/other", Acl: everybody},
			&zk.SetDataRequest{Path: "/n", Data: []byte("new")},
			&zk.DeleteRequest{Path: "/n/other"},
		)
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"create", "create", "setData", "delete"}
		if !slices.Equal(ops, want) {
			t.Errorf("changes: got %v, want %v", ops, want)
		}
	})
}
