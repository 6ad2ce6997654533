package zklock_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

func TestSessionExpiredWhileWaitingJoinsTheTailAndIsServed(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s).acquire(t)
		victim := start(t, s)
		first, second := victim.queue(t.Context()), start(t, s).queue(t.Context())
		s.Expire(victim.session)
		if time.Sleep(2 * time.Second); !first.waiting() {
			t.Fatalf("ended while another holds: %v", first.err)
		}
		if got := len(s.Children(path)); got != 3 {
			t.Errorf("queue: got %d nodes, want 3", got)
		}
		n.Release()
		held := second.granted(t)
		if !first.waiting() {
			t.Fatal("granted to both")
		}
		held.Release()
		next := first.granted(t)
		if err := next.Err(); err != nil {
			t.Error(err)
		}
		next.Release()
		wantEmpty(t, s)
	})
}

func TestSessionExpiredWhileHoldingIsALossAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		n := p.acquire(t)
		next := start(t, s).queue(t.Context())
		begun := time.Now()
		s.Expire(p.session)
		awaitLoss(t, n)
		if d := time.Since(begun); d != 0 {
			t.Errorf("noticed after %v", d)
		}
		wantErr(t, "Err", n.Err(), zklock.ErrLost)
		wantErr(t, "Err", n.Err(), zk.ErrSessionExpired)
		wantErr(t, "cause of Context", context.Cause(n.Context()), zklock.ErrLost)
		held := next.granted(t)
		wantErr(t, "Release", n.Release(), zklock.ErrLost)
		wantErr(t, "second Release", n.Release(), zklock.ErrReleased)
		time.Sleep(time.Minute)
		if err := held.Err(); err != nil || !s.Exists(held.Path()) {
			t.Errorf("the next holder: %v, node there: %t", err, s.Exists(held.Path()))
		}
		held.Release()
		p.acquire(t).Release() // goes on with a new session
	})
}

// The client is told that its session is over while the server keeps its nodes, as after CURATOR-498.
func TestNodesOfAnUndeadSessionBarTheWayUntilTheReaperComes(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		n := p.acquire(t)
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Stage == zktest.Request && f.Op == zktest.OpConnect && f.Session == p.session {
				return zktest.Expired
			}
			if f.Stage == zktest.Request && f.Op == zktest.OpDelete { // the reaper's
				return zktest.Delay(time.Second)
			}
			return zktest.Pass
		})
		s.Cut(p.session)
		awaitLoss(t, n)
		begun := time.Now()
		r := p.queue(t.Context())
		if !r.waiting() {
			t.Fatalf("ended beside the old node: %v", r.err)
		}
		r.await(t)
		next := r.granted(t)
		if d := time.Since(begun); d < time.Second || d >= timeout {
			t.Errorf("granted after %v, want when the reaper has deleted the old node", d)
		}
		if s.Exists(n.Path()) {
			t.Error("granted beside the old node")
		}
		next.Release()
		n.Release()
		wantEmpty(t, s)
	})
}

func TestNodeDeletedByAnotherIsALossAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		n := p.acquire(t)
		next := start(t, s).queue(t.Context())
		conn := raw(t, s)
		awaitWatch()
		begun := time.Now()
		if err := conn.Delete(n.Path(), -1); err != nil {
			t.Fatal(err)
		}
		awaitLoss(t, n)
		if d := time.Since(begun); d != 0 {
			t.Errorf("noticed after %v", d)
		}
		wantErr(t, "Err", n.Err(), zklock.ErrLost)
		wantErr(t, "Release", n.Release(), zklock.ErrLost)
		next.granted(t).Release()
	})
}

// Both watch the same path, for which the client has one watch.
func TestDeletedNodeIsToldToItsOwnerAndToWhoWaitsBehindItInOneProcess(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		n := p.acquire(t)
		next := p.queue(t.Context())
		awaitWatch()
		begun := time.Now()
		if err := raw(t, s).Delete(n.Path(), -1); err != nil {
			t.Fatal(err)
		}
		awaitLoss(t, n)
		next.await(t)
		next.granted(t).Release()
		if d := time.Since(begun); d != 0 {
			t.Errorf("noticed after %v", d)
		}
	})
}

func TestNodeWrittenToAndThenDeletedByAnotherIsALossAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n, conn := start(t, s).acquire(t), raw(t, s)
		awaitWatch()
		begun := time.Now()
		if _, err := conn.Set(n.Path(), nil, -1); err != nil { // uses the watch up
			t.Fatal(err)
		}
		synctest.Wait()
		if err := n.Err(); err != nil {
			t.Fatalf("lost by a write: %v", err)
		}
		if err := conn.Delete(n.Path(), -1); err != nil {
			t.Fatal(err)
		}
		awaitLoss(t, n)
		if d := time.Since(begun); d != 0 {
			t.Errorf("noticed after %v", d)
		}
	})
}

func TestNodeDeletedByAnotherWhileItsEventIsLostIsNoticedByTheHeartbeat(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s).acquire(t)
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Stage == zktest.Event {
				return zktest.Drop
			}
			return zktest.Pass
		})
		conn := raw(t, s)
		begun := time.Now()
		if err := conn.Delete(n.Path(), -1); err != nil {
			t.Fatal(err)
		}
		awaitLoss(t, n)
		if d := time.Since(begun); d > beat {
			t.Errorf("noticed after %v, want at most %v", d, beat)
		}
	})
}

func TestNodeDeletedByAnotherWhileWaitingIsReplaced(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s).acquire(t)
		r := start(t, s).queue(t.Context())
		conn := raw(t, s)
		for _, name := range s.Children(path) {
			if path+"/"+name == n.Path() {
				continue
			}
			if err := conn.Delete(path+"/"+name, -1); err != nil {
				t.Fatal(err)
			}
		}
		if time.Sleep(time.Second); !r.waiting() {
			t.Fatalf("ended while another holds: %v", r.err)
		}
		if got := len(s.Children(path)); got != 2 {
			t.Errorf("queue: got %d nodes, want 2", got)
		}
		n.Release()
		r.granted(t).Release()
		wantEmpty(t, s)
	})
}

func TestWholeLockPathDeletedIsALossAndTheWaiterGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s).acquire(t)
		r := start(t, s).queue(t.Context())
		var deletes []any
		for _, name := range s.Children(path) {
			deletes = append(deletes, &zk.DeleteRequest{Path: path + "/" + name, Version: -1})
		}
		deletes = append(deletes, &zk.DeleteRequest{Path: path, Version: -1}, &zk.DeleteRequest{Path: "/locks", Version: -1})
		if _, err := raw(t, s).Multi(deletes...); err != nil {
			t.Fatal(err)
		}
		awaitLoss(t, n)
		r.await(t)
		next := r.granted(t)
		if next.Token() <= n.Token() {
			t.Errorf("token %d after %d", next.Token(), n.Token())
		}
		next.Release()
	})
}

// A late delete of an old node must not hit a newer one whose number is the same, which it is
// once the parent was created anew.
func TestI12LateDeleteHitsOnlyItsOwnNode(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		n := p.acquire(t)
		if _, err := raw(t, s).Multi(&zk.DeleteRequest{Path: n.Path(), Version: -1}, &zk.DeleteRequest{Path: path, Version: -1}); err != nil {
			t.Fatal(err)
		}
		awaitLoss(t, n)
		next := start(t, s).acquire(t)
		const digits = 10
		if a, b := n.Path(), next.Path(); a[len(a)-digits:] != b[len(b)-digits:] {
			t.Fatalf("%s and %s: want the same number", a, b)
		}
		wantErr(t, "Release", n.Release(), zklock.ErrLost)
		if time.Sleep(time.Minute); !slices.Contains(s.Children(path), next.Path()[len(path)+1:]) {
			t.Error("the newer node is gone")
		}
	})
}

// Throttled, say: the connection stands, so there is no other occasion to look.
func TestLookThatIsRefusedIsRepeated(t *testing.T) { // I7
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n, conn := start(t, s).acquire(t), raw(t, s)
		refused := false
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op == zktest.OpGetData && f.Stage == zktest.Request && !refused {
				refused = true
				return zktest.Error(zktest.CodeThrottled)
			}
			return zktest.Pass
		})
		awaitWatch()
		if awaitWatch(); !refused {
			t.Fatal("nobody has looked")
		}
		if err := conn.Delete(n.Path(), -1); err != nil {
			t.Fatal(err)
		}
		if synctest.Wait(); n.Err() == nil {
			t.Error("the deletion is not heard of")
		}
	})
}
