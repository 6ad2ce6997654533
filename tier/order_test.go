package tier_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/zktest"
)

// answerLate delays the answers to one kind of request: what was asked has happened on
// the server, and the client does not know.
func answerLate(srv *zktest.Server, op zktest.Op, d time.Duration) {
	srv.Intercept(func(f *zktest.Frame) zktest.Action {
		if f.Stage == zktest.Reply && f.Op == op {
			return zktest.Delay(d)
		}
		return zktest.Pass
	})
}

// Who waits when the owner releases gets a node made in the transaction that ends the
// owner's, and no turn before that is known to have happened.
func TestNodeGoesBeforeTheGateOpensForAWaiter(t *testing.T) { // I4
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		mu := process(t, srv).Mutex("/locks/a")
		hold := acquire(t, mu)
		old := srv.Children("/locks/a")[0]
		waiter := start(soon(t), mu).blocked(t)
		answerLate(srv, zktest.OpMulti, time.Second)
		released := make(chan struct{})
		go func() {
			defer close(released)
			release(t, hold)
		}()
		waiter.blocked(t)
		if srv.Exists("/locks/a/" + old) {
			t.Error("the owner's node is still there after its release")
		}
		select {
		case <-released:
			t.Error("Release returned before the answer")
		default:
		}
		if n := len(srv.Children("/locks/a")); n != 1 {
			t.Errorf("%d nodes after the release, want the waiter's", n)
		}
		began := time.Now()
		next := waiter.granted(t)
		if waited := time.Since(began); waited < time.Second {
			t.Errorf("the gate opened %v before the answer", time.Second-waited)
		}
		if next.Token() <= hold.Token() {
			t.Errorf("token of the next owner: got %d, want above %d", next.Token(), hold.Token())
		}
		<-released
		release(t, next)
	})
}

// Who comes while the node is being deleted waits for the end of that.
func TestNodeGoesBeforeTheGateOpensForALatecomer(t *testing.T) { // I3 I4
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		mu := process(t, srv).Mutex("/locks/a")
		hold := acquire(t, mu)
		answerLate(srv, zktest.OpDelete, time.Second)
		released := make(chan struct{})
		go func() {
			defer close(released)
			release(t, hold)
		}()
		synctest.Wait()
		latecomer := start(soon(t), mu).blocked(t)
		if nodes := srv.Children("/locks/a"); len(nodes) != 0 {
			t.Errorf("nodes while the delete is not answered: got %v, want none", nodes)
		}
		began := time.Now()
		next := latecomer.granted(t)
		if waited := time.Since(began); waited < time.Second {
			t.Errorf("the gate opened %v before the answer", time.Second-waited)
		}
		<-released
		srv.Intercept(nil)
		release(t, next)
	})
}

// The one that waits elsewhere goes first: the gate is no way around the queue.
func TestReleaseServesTheOtherProcessBeforeTheOwnWaiters(t *testing.T) { // I4 I6
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		mu, other := process(t, srv).Mutex("/locks/a"), process(t, srv).Mutex("/locks/a")
		srv.OnChange(func(v zktest.View, _ []zktest.Change) {
			for session, n := range lockNodes(v, "/locks/a") {
				if n > 1 {
					t.Errorf("session %#x has %d nodes, want 1", session, n)
				}
			}
		})
		hold := acquire(t, mu)
		own := start(soon(t), mu).blocked(t)
		foreign := start(soon(t), other).blocked(t)
		release(t, hold)
		hold = foreign.granted(t)
		own.blocked(t)
		release(t, hold)
		release(t, own.granted(t))
	})
}

// A release that the server does not answer neither hangs nor opens the gate to a second
// node in front of the first.
func TestReleaseWithoutAnAnswerIsBoundedAndLeavesNothing(t *testing.T) { // I5
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		mu := process(t, srv).Mutex("/locks/a")
		hold := acquire(t, mu)
		srv.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Stage == zktest.Request && f.Op == zktest.OpDelete && f.Nth == 1 {
				return zktest.Drop
			}
			return zktest.Pass
		})
		began := time.Now()
		release(t, hold)
		if took := time.Since(began); took > sessionTimeout/3 {
			t.Errorf("Release took %v, want at most %v", took, sessionTimeout/3)
		}
		srv.CutAll() // the library waits for the answer until then
		release(t, acquire(t, mu))
		time.Sleep(sessionTimeout) // virtual
		synctest.Wait()
		if nodes := srv.Children("/locks/a"); len(nodes) != 0 {
			t.Errorf("left behind: %v", nodes)
		}
	})
}
