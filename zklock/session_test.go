package zklock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/zktest"
)

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
