package zklock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/zktest"
)

func TestContestedTellsOfAWaiterAndOnlyThen(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s).acquire(t)
		contested := n.Contested()
		if time.Sleep(time.Minute); n.ContestedFor() != 0 {
			t.Fatalf("contested for %v without a contender", n.ContestedFor())
		}
		start(t, s).queue(t.Context())
		select {
		case <-contested:
		default:
			t.Fatal("the waiter was not noticed at once")
		}
		if time.Sleep(3 * time.Second); n.ContestedFor() != 3*time.Second {
			t.Errorf("contested for %v, want 3s", n.ContestedFor())
		}
	})
}

// contested reports whether n is known to be, once nothing moves any more.
func contested(n interface{ Contested() <-chan struct{} }) bool {
	c := n.Contested() // which may begin to look
	synctest.Wait()
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// A watch can be lost, and setting it again after a reconnect may fail unseen.
func TestContenderIsNoticedInTimeAlthoughTheWatchIsLost(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s).acquire(t)
		other := start(t, s)
		if contested(n) {
			t.Fatal("contested without a contender")
		}
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Stage == zktest.Event {
				return zktest.Drop
			}
			return zktest.Pass
		})
		time.Sleep(5 * timeout) // some looks that show nothing
		other.queue(t.Context())
		if contested(n) {
			t.Fatal("noticed although the event was lost")
		}
		time.Sleep(2 * timeout)
		if !contested(n) {
			t.Errorf("not noticed within %v", 2*timeout)
		}
	})
}

// A look that fails is repeated soon, and sets the watch then.
func TestContenderIsNoticedAtOnceAlthoughTheFirstLookFailed(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s).acquire(t)
		other := start(t, s)
		failed := false
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op == zktest.OpGetChildren2 && f.Stage == zktest.Request && !failed {
				failed = true
				return zktest.Error(zktest.CodeThrottled)
			}
			return zktest.Pass
		})
		contested(n)
		if time.Sleep(timeout / 3); !failed || contested(n) {
			t.Fatalf("the look failed: %t; contested without a contender: %t", failed, contested(n))
		}
		other.queue(t.Context())
		if !contested(n) {
			t.Error("not noticed at once")
		}
	})
}
