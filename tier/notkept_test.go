package tier_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/tier"
)

// Without a connection nobody can tell whether another process has come, and the lease may be about to end.
func TestNodeIsNotHandedOnWhileTheConnectionIsDown(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks, p := dial(t, s, "", tier.WithHandOff(time.Hour))
		mu := locks.Mutex("/locks/a")
		hold := acquire(t, mu)
		waiter := start(soon(t), mu).blocked(t)
		heal := cut(p)
		if !hold.Suspended() {
			t.Fatal("the lock is not suspended")
		}
		hold.Release()
		waiter.blocked(t)
		heal()
		next := waiter.granted(t)
		if next.Token() == hold.Token() {
			t.Error("the waiter got the node of the former owner")
		}
		release(t, next)
	})
}

func TestNodeDoesNotLingerWhileTheConnectionIsDown(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks, p := dial(t, s, "", tier.WithLinger(time.Hour))
		mu := locks.Mutex("/locks/a")
		hold := acquire(t, mu)
		heal := cut(p)
		hold.Release()
		next := start(soon(t), mu).blocked(t)
		heal()
		if next := next.granted(t); next.Token() == hold.Token() {
			t.Error("the node was kept")
		}
	})
}

// A waiter that was chosen a moment ago and leaves gives the node to the next one, but not a lost one.
func TestLostNodeIsNotPassedOn(t *testing.T) {
	metered(t, func(t *testing.T, s *memory.Server, _ *meter, process func(...tier.Option) *tier.Mutex) {
		mu := process()
		hold := acquire(t, mu)
		waiters := []*acquisition{start(soon(t), mu).blocked(t), start(soon(t), mu).blocked(t)}
		s.Expire("/locks/a", 0)
		<-hold.Lost()
		tier.PassOn(hold)
		for _, w := range waiters {
			next := w.granted(t)
			if err := next.Err(); err != nil || next.Token() == hold.Token() {
				t.Errorf("granted with Err %v, token %d after %d; want a node that is not lost", err, next.Token(), hold.Token())
			}
			release(t, next)
		}
	})
}

// In the moment in which the lease ends, whoever wants the lock may come before those who are told of the end.
func TestLostNodeIsNotTakenBackIntoUse(t *testing.T) {
	for range 50 {
		metered(t, func(t *testing.T, s *memory.Server, _ *meter, process func(...tier.Option) *tier.Mutex) {
			mu := process(tier.WithLinger(time.Hour))
			other := tier.Sibling(mu, "/locks/b")
			lease := acquire(t, other)
			first := acquire(t, mu)
			release(t, first)
			thaw := s.Freeze()
			<-lease.Lost() // of both
			next := start(soon(t), mu)
			synctest.Wait()
			if !next.pending() && next.hold != nil {
				t.Fatalf("a lost node was taken back: %v", next.hold.Err())
			}
			thaw()
			release(t, next.granted(t))
		})
		if t.Failed() {
			return
		}
	}
}

// The delete of a node that is being given up has taken effect before anything else is done at its path.
func TestNobodyQueuesBehindTheOwnNodeThatIsBeingGivenUp(t *testing.T) { // I3, I4
	metered(t, func(t *testing.T, s *memory.Server, m *meter, process func(...tier.Option) *tier.Mutex) {
		mu := process()
		hold := acquire(t, mu)
		answer := make(chan struct{})
		s.Script(func(process string, c queue.Command) memory.Fault {
			m.note(process, c)
			if c.Op == queue.Leave {
				<-answer
			}
			return memory.Fault{}
		})
		m.take()
		tier.PassOn(hold)
		synctest.Wait()
		next := start(soon(t), mu).blocked(t)
		if ops := m.take(); !slices.Equal(ops, []queue.Op{queue.Leave}) {
			t.Errorf("sent before the command to leave was answered: %v, want nothing but that", ops)
		}
		close(answer)
		release(t, next.granted(t))
	})
}

// A closed registry says so, whatever it was doing.
func TestClosedRegistryIsNotLocked(t *testing.T) {
	metered(t, func(t *testing.T, _ *memory.Server, _ *meter, process func(...tier.Option) *tier.Mutex) {
		mu := process()
		hold := acquire(t, mu)
		tier.Close(mu)
		tier.PassOn(hold)
		if _, err := mu.TryAcquire(soon(t)); !errors.Is(err, tier.ErrClosed) {
			t.Errorf("TryAcquire: got %v, want %v", err, tier.ErrClosed)
		}
	})
}
