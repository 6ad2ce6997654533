package zktest_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/zktest"
)

const tick = 500 * time.Millisecond

// ticking runs f with an ensemble whose leader pings its followers.
func ticking(t *testing.T, f func(t *testing.T, s *zktest.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t, zktest.Config{Tick: tick})
		f(t, s)
	})
}

// expiry returns a channel that gets the time at which the server deletes path.
func expiry(s *zktest.Server, path string) <-chan time.Time {
	at := make(chan time.Time, 1)
	s.OnChange(func(_ zktest.View, changes []zktest.Change) {
		for _, c := range changes {
			if c.Op == "delete" && c.Path == path {
				at <- time.Now()
			}
		}
	})
	return at
}

func ephemeral(t *testing.T, conn *zk.Conn, path string) {
	t.Helper()
	if _, err := conn.Create(path, nil, zk.FlagEphemeral, everybody); err != nil {
		t.Fatal(err)
	}
}

// asked runs a request that has to wait, and returns a channel that gets its error.
func asked(f func() error) <-chan error {
	answer := make(chan error, 1)
	go func() { answer <- f() }()
	synctest.Wait()
	return answer
}

func TestIsolatedMemberAnswersReadsFromThePastWhileItsSessionsExpire(t *testing.T) {
	ticking(t, func(t *testing.T, s *zktest.Server) {
		inside, outside := connect(t, s, 4*time.Second, addr), connect(t, s, 10*time.Second, addr2)
		ephemeral(t, inside, "/e")
		gone := expiry(s, "/e")
		time.Sleep(tick/2 + 1) // the leader has just heard of the create
		s.Member(addr).Isolate()
		cut := time.Now()
		if _, err := outside.Create("/new", nil, 0, everybody); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if old, _, err := inside.Exists("/e"); !old || err != nil {
			t.Errorf("a read on the isolated member: %v, %v", old, err)
		}
		if young, _, err := inside.Exists("/new"); young || err != nil {
			t.Errorf("a read of what happened outside: %v, %v", young, err)
		}
		if d := (<-gone).Sub(cut); d != 4*time.Second-1 {
			t.Errorf("the session expired %v after the cut, want its timeout", d)
		}
	})
}

func TestIsolatedMemberForwardsItsWritesInOrderWhenItRejoins(t *testing.T) {
	ticking(t, func(t *testing.T, s *zktest.Server) {
		conn := connect(t, s, 10*time.Second, addr)
		s.Member(addr).Isolate()
		create := asked(func() error { _, err := conn.Create("/n", nil, 0, everybody); return err })
		set := asked(func() error { _, err := conn.Set("/n", []byte("x"), 0); return err })
		read := asked(func() error { _, _, err := conn.Get("/n"); return err })
		time.Sleep(2 * tick)
		synctest.Wait()
		if len(create)+len(set)+len(read) > 0 || s.Exists("/n") {
			t.Error("answered without a leader")
		}
		s.Member(addr).Rejoin()
		for _, answer := range []<-chan error{create, set, read} {
			if err := <-answer; err != nil {
				t.Error(err)
			}
		}
	})
}

func TestIsolatedMemberGivesItsClientsUpAfterFiveTicks(t *testing.T) {
	ticking(t, func(t *testing.T, s *zktest.Server) {
		conn := connect(t, s, 10*time.Second, addr)
		s.Member(addr).Isolate()
		if time.Sleep(5*tick - 1); conn.State() != zk.StateHasSession {
			t.Error("given up too early")
		}
		time.Sleep(2)
		synctest.Wait()
		if conn.State() == zk.StateHasSession {
			t.Error("not given up")
		}
		s.Member(addr).Rejoin()
		time.Sleep(3 * time.Second)
		if conn.State() != zk.StateHasSession {
			t.Error("no clients after the member has rejoined")
		}
	})
}

func TestLeaderHearsOfASessionWhenItPingsTheFollower(t *testing.T) {
	ticking(t, func(t *testing.T, s *zktest.Server) {
		conn := connect(t, s, 4*time.Second, addr)
		ephemeral(t, conn, "/e")
		gone := expiry(s, "/e")
		time.Sleep(tick/2 - 1) // a ping is due
		if _, _, err := conn.Exists("/e"); err != nil {
			t.Fatal(err)
		}
		asked := time.Now()
		time.Sleep(1)
		s.Mute(conn.SessionID(), zktest.Request)
		if d := (<-gone).Sub(asked); d != 4*time.Second+1 {
			t.Errorf("expired %v after the last request, want the timeout after the ping", d)
		}
	})
}

// The newest answer to a write says nothing of when the leader heard of the session.
func TestGlimpseLetsAWriteThroughAndNotTheReport(t *testing.T) {
	ticking(t, func(t *testing.T, s *zktest.Server) {
		conn := connect(t, s, 4*time.Second, addr)
		ephemeral(t, conn, "/e")
		gone := expiry(s, "/e")
		time.Sleep(tick/2 + 1) // the leader has just heard of the create
		s.Member(addr).Isolate()
		cut := time.Now()
		time.Sleep(2 * time.Second)
		create := asked(func() error { _, err := conn.Create("/n", nil, 0, everybody); return err })
		s.Member(addr).Glimpse(1)
		if err := <-create; err != nil {
			t.Error(err)
		}
		if d := (<-gone).Sub(cut); d != 4*time.Second-1 {
			t.Errorf("expired %v after the cut, want the timeout", d)
		}
	})
}

func TestDeposedLeaderAnswersWhatItNeedsNobodyFor(t *testing.T) {
	ticking(t, func(t *testing.T, s *zktest.Server) {
		conn := connect(t, s, 4*time.Second, addr)
		ephemeral(t, conn, "/e")
		var gone atomic.Bool
		s.OnChange(func(v zktest.View, _ []zktest.Change) { gone.Store(!v.Exists("/e")) })
		time.Sleep(2 * time.Second)
		s.Member(addr).Depose()
		if _, err := conn.Sync("/e"); err != nil {
			t.Errorf("sync: %v", err)
		}
		set := asked(func() error { _, err := conn.Set("/e", nil, -1); return err })
		time.Sleep(2 * time.Second)
		if len(set) > 0 {
			t.Errorf("a write was answered: %v", <-set)
		}
		if time.Sleep(2*time.Second - 1); gone.Load() {
			t.Error("the new leader's clocks did not begin anew")
		}
		time.Sleep(2)
		if !gone.Load() {
			t.Error("the new leader goes by what the old one hears")
		}
		s.Member(addr).Rejoin()
		<-set
		time.Sleep(time.Second)
	})
}
