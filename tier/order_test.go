package tier_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/queue"
)

// Who waits when the owner releases queues with the command that removes the
// owner, and has no turn before that is known to have happened.
func TestNodeGoesBeforeTheGateOpensForAWaiter(t *testing.T) { // I4
	bubble(t, func(t *testing.T, s *memory.Server) {
		mu := process(t, s).Mutex("/locks/a")
		hold := acquire(t, mu)
		waiter := start(soon(t), mu).blocked(t)
		answerLate(s, queue.Enter, time.Second)
		released := make(chan struct{})
		go func() {
			defer close(released)
			release(t, hold)
		}()
		waiter.blocked(t)
		select {
		case <-released:
			t.Error("Release returned before the answer")
		default:
		}
		if left := s.Queue("/locks/a"); len(left) != 1 || left[0].Token == hold.Token() {
			t.Errorf("contenders after the release: %v, want the waiter's", left)
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
	bubble(t, func(t *testing.T, s *memory.Server) {
		mu := process(t, s).Mutex("/locks/a")
		hold := acquire(t, mu)
		answerLate(s, queue.Leave, time.Second)
		released := make(chan struct{})
		go func() {
			defer close(released)
			release(t, hold)
		}()
		synctest.Wait()
		latecomer := start(soon(t), mu).blocked(t)
		if nodes := s.Queue("/locks/a"); len(nodes) != 0 {
			t.Errorf("nodes while the delete is not answered: got %v, want none", nodes)
		}
		began := time.Now()
		next := latecomer.granted(t)
		if waited := time.Since(began); waited < time.Second {
			t.Errorf("the gate opened %v before the answer", time.Second-waited)
		}
		<-released
		s.Script(nil)
		release(t, next)
	})
}

// The one that waits elsewhere goes first: the gate is no way around the queue.
func TestReleaseServesTheOtherProcessBeforeTheOwnWaiters(t *testing.T) { // I4 I6
	bubble(t, func(t *testing.T, s *memory.Server) {
		mu, other := named(t, s, "one").Mutex("/locks/a"), named(t, s, "other").Mutex("/locks/a")
		s.Script(func(string, queue.Command) memory.Fault {
			wantOneEach(t, s)
			return memory.Fault{}
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
	bubble(t, func(t *testing.T, s *memory.Server) {
		mu := process(t, s).Mutex("/locks/a")
		hold := acquire(t, mu)
		var first sync.Once
		s.Script(func(_ string, c queue.Command) (f memory.Fault) {
			if c.Op == queue.Leave {
				first.Do(func() { f.Never = true })
			}
			return f
		})
		began := time.Now()
		release(t, hold)
		if took := time.Since(began); took > sessionTimeout/3 {
			t.Errorf("Release took %v, want at most %v", took, sessionTimeout/3)
		}
		release(t, acquire(t, mu))
		time.Sleep(sessionTimeout) // virtual
		synctest.Wait()
		if nodes := s.Queue("/locks/a"); len(nodes) != 0 {
			t.Errorf("left behind: %v", nodes)
		}
	})
}
