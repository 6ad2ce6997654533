package tier_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/tier"
)

var errChangedMind = errors.New("changed my mind")

// cancelled waits for an acquisition that was called off.
func (a *acquisition) cancelled(t *testing.T) {
	t.Helper()
	if <-a.done; !errors.Is(a.err, errChangedMind) || a.hold != nil {
		t.Errorf("cancelled Acquire: got %v, %v; want the cause of its context", a.hold, a.err)
	}
}

func TestAcquireWithDoneContextSendsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		mu := process(t, s).Mutex("/locks/a")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errChangedMind)
		var m meter
		s.Script(m.note)
		for _, take := range []func(context.Context) (*tier.Hold, error){mu.Acquire, mu.TryAcquire} {
			if _, err := take(ctx); !errors.Is(err, errChangedMind) {
				t.Errorf("Acquire with a done context: got %v, want %v", err, errChangedMind)
			}
		}
		synctest.Wait()
		if ops := m.take(); len(ops) != 0 {
			t.Errorf("sent %v, want nothing", ops)
		}
	})
}

func TestCancelAtTheGateChangesNothingForTheOthers(t *testing.T) { // I9
	for leaver := range 3 {
		bubble(t, func(t *testing.T, s *memory.Server) {
			mu := process(t, s).Mutex("/locks/a")
			hold := acquire(t, mu)
			ctx, cancel := context.WithCancelCause(t.Context())
			var stay []*acquisition
			var leave *acquisition
			for i := range 3 {
				if i == leaver {
					leave = start(ctx, mu).blocked(t)
				} else {
					stay = append(stay, start(soon(t), mu).blocked(t))
				}
			}
			cancel(errChangedMind)
			leave.cancelled(t)
			for _, w := range stay {
				w.blocked(t)
			}
			release(t, hold)
			release(t, stay[0].granted(t))
			release(t, stay[1].granted(t))
			if nodes := s.Queue("/locks/a"); len(nodes) != 0 {
				t.Errorf("left behind: %v", nodes)
			}
		})
	}
}

// The caller leaves at once; the contender is removed when the answer has come.
func TestCancelWhileTheAnswerIsUnderWayLeavesNobody(t *testing.T) { // I5
	bubble(t, func(t *testing.T, s *memory.Server) {
		mu := process(t, s).Mutex("/locks/a")
		answerLate(s, queue.Enter, time.Second)
		ctx, cancel := context.WithCancelCause(t.Context())
		leave := start(ctx, mu).blocked(t)
		if n := len(s.Queue("/locks/a")); n != 1 {
			t.Fatalf("%d contenders while the answer is under way, want 1", n)
		}
		cancelled := time.Now()
		cancel(errChangedMind)
		leave.cancelled(t)
		if waited := time.Since(cancelled); waited != 0 {
			t.Errorf("Acquire returned %v after it was cancelled, want at once", waited)
		}
		next := acquire(t, mu)
		if n := len(s.Queue("/locks/a")); n != 1 {
			t.Errorf("%d contenders when the next one has the lock, want 1", n)
		}
		release(t, next)
		if nodes := s.Queue("/locks/a"); len(nodes) != 0 {
			t.Errorf("left behind: %v", nodes)
		}
	})
}

func TestCancelBehindAnotherProcessLeavesTheQueue(t *testing.T) { // I9
	bubble(t, func(t *testing.T, s *memory.Server) {
		hold := acquire(t, process(t, s).Mutex("/locks/a"))
		ctx, cancel := context.WithCancelCause(t.Context())
		leave := start(ctx, process(t, s).Mutex("/locks/a")).blocked(t)
		third := start(soon(t), process(t, s).Mutex("/locks/a")).blocked(t)
		cancel(errChangedMind)
		leave.cancelled(t)
		third.blocked(t) // the one in the middle has gone, which grants nothing
		if n := len(s.Queue("/locks/a")); n != 2 {
			t.Errorf("%d contenders after one of three has left, want 2", n)
		}
		release(t, hold)
		release(t, third.granted(t))
	})
}

// The place in the queue belongs to the process, not to the waiter that was first.
func TestWaiterThatGivesUpDoesNotCostTheProcessItsPlace(t *testing.T) { // I9
	bubble(t, func(t *testing.T, s *memory.Server) {
		holder, mu := process(t, s).Mutex("/locks/a"), process(t, s).Mutex("/locks/a")
		hold := acquire(t, holder)
		ctx, cancel := context.WithCancelCause(t.Context())
		leave := start(ctx, mu).blocked(t)
		stay := start(soon(t), mu).blocked(t)
		before, err := holder.Contenders(soon(t))
		if err != nil {
			t.Fatal(err)
		}
		cancel(errChangedMind)
		leave.cancelled(t)
		stay.blocked(t)
		after, err := holder.Contenders(soon(t))
		if err != nil {
			t.Fatal(err)
		}
		if len(before) != 2 || len(after) != 2 || before[1].ID != after[1].ID {
			t.Fatalf("queue before and after: %+v, %+v; want the same node", before, after)
		}
		release(t, hold)
		next := stay.granted(t)
		if next.Token() != before[1].Token {
			t.Errorf("token: got %d, want %d of the first node", next.Token(), before[1].Token)
		}
		release(t, next)
	})
}

// The cancelled waiter is the first of its process, which is the next in the queue. Each
// run cancels it at another message on the way from the other process's release to the grant.
func TestCancelAtAnyMessageOfTheGrantKeepsEverybodysPlace(t *testing.T) { // I5 I9
	const enough = 40
	for at := range enough {
		reached := false
		bubble(t, func(t *testing.T, s *memory.Server) {
			var mutexes []*tier.Mutex
			var processes []*memory.Process
			for range 3 {
				locks, p := dial(t, s, "", tier.WithHandOff(0))
				mutexes, processes = append(mutexes, locks.Mutex("/locks/a")), append(processes, p)
			}
			holder, mu, last := mutexes[0], mutexes[1], mutexes[2]
			hold := acquire(t, holder)
			ctx, cancel := context.WithCancelCause(soon(t))
			first := start(ctx, mu).blocked(t)
			second := start(soon(t), mu).blocked(t)
			third := start(soon(t), last).blocked(t)
			atMessage(s, at, func() {
				reached = true
				cancel(errChangedMind)
			}, processes...)
			release(t, hold)
			if <-first.done; first.err == nil {
				release(t, first.hold)
			} else if !errors.Is(first.err, errChangedMind) {
				t.Errorf("message %d: got %v, want the lock or the cause", at, first.err)
			}
			b, c := second, third
			if first.err == nil { // its process had its turn and queued again behind the other
				b, c = third, second
			}
			next := b.granted(t)
			c.blocked(t)
			release(t, next)
			release(t, c.granted(t))
			cancel(nil)
			synctest.Wait()
			if nodes := s.Queue("/locks/a"); len(nodes) != 0 {
				t.Errorf("message %d: left behind: %v", at, nodes)
			}
		})
		if !reached {
			return
		}
	}
	t.Errorf("a grant of more than %d messages?", enough)
}

// Without any message to hang on to: the turn comes and the context ends at the same time.
func TestCancelRacingWithTheTurnLosesNeitherTurnNorNode(t *testing.T) { // I5 I9
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks, p := dial(t, s, "", tier.WithHandOff(0))
		mu := locks.Mutex("/locks/a")
		for round := range 300 {
			hold := acquire(t, mu)
			ctx, cancel := context.WithCancelCause(soon(t))
			racer := start(ctx, mu).blocked(t)
			var last *acquisition
			if round%2 == 0 { // in the other rounds nobody is there to take the turn over
				last = start(soon(t), mu).blocked(t)
			}
			var turn sync.Once
			p.Messages(func() bool {
				turn.Do(func() { go cancel(errChangedMind) })
				return false
			})
			release(t, hold)
			if <-racer.done; racer.err == nil {
				release(t, racer.hold)
			} else if !errors.Is(racer.err, errChangedMind) {
				t.Fatalf("racer: got %v, want the lock or the cause", racer.err)
			}
			if last != nil {
				release(t, last.granted(t))
			}
			synctest.Wait()
			p.Messages(nil)
			cancel(nil)
			if nodes := s.Queue("/locks/a"); len(nodes) != 0 {
				t.Fatalf("left behind: %v", nodes)
			}
		}
	})
}
