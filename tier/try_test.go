package tier_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zktest"
)

func TestTryAcquireSendsNothingWhileTheGateIsTaken(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		owner, mu := process(t, s).Mutex("/locks/a"), process(t, s).Mutex("/locks/a")
		try := func(when string) {
			t.Helper()
			var m meter
			s.Script(m.note)
			if _, err := mu.TryAcquire(soon(t)); !errors.Is(err, tier.ErrLocked) {
				t.Errorf("TryAcquire while %s: got %v, want ErrLocked", when, err)
			}
			synctest.Wait()
			if ops := m.take(); len(ops) != 0 {
				t.Errorf("TryAcquire while %s sent %v, want nothing", when, ops)
			}
			s.Script(nil)
		}
		hold := acquire(t, owner)
		waiter := start(soon(t), mu).blocked(t)
		try("a goroutine of this process waits")
		release(t, hold)
		hold = waiter.granted(t)
		try("a goroutine of this process has the lock")
		release(t, hold)
	})
}

func TestTryAcquireLeavesNothingWhenLockedElsewhere(t *testing.T) { // I5
	bubble(t, func(t *testing.T, s *memory.Server) {
		hold := acquire(t, process(t, s).Mutex("/locks/a"))
		mu := process(t, s).Mutex("/locks/a")
		var m meter
		s.Script(m.note)
		began := time.Now()
		if _, err := mu.TryAcquire(soon(t)); !errors.Is(err, tier.ErrLocked) {
			t.Errorf("TryAcquire: got %v, want ErrLocked", err)
		}
		if waited := time.Since(began); waited != 0 {
			t.Errorf("TryAcquire waited %v", waited)
		}
		synctest.Wait()
		if ops := m.take(); !slices.Equal(ops, []queue.Op{queue.Try}) {
			t.Errorf("TryAcquire sent %v, want one command", ops)
		}
		release(t, hold)
		free, err := mu.TryAcquire(soon(t))
		if err != nil {
			t.Fatalf("TryAcquire of a free lock: %v", err)
		}
		release(t, free)
		if n := len(s.Queue("/locks/a")); n != 0 {
			t.Errorf("%d contenders in the end, want 0", n)
		}
	})
}

// hanging starts a TryAcquire that arrives when answer is closed.
func hanging(ctx context.Context, t *testing.T, s *memory.Server, mu *tier.Mutex) (a *acquisition, answer chan struct{}) {
	t.Helper()
	answer = make(chan struct{})
	s.Script(func(_ string, c queue.Command) memory.Fault {
		if c.Op == queue.Try {
			<-answer
		}
		return memory.Fault{}
	})
	a = &acquisition{done: make(chan struct{})}
	go func() {
		defer close(a.done)
		a.hold, a.err = mu.TryAcquire(ctx)
	}()
	return a.blocked(t), answer
}

// Whoever queues behind a TryAcquire is served whatever becomes of it.
func TestWaiterBehindTryAcquireIsServed(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		other, mu := process(t, s).Mutex("/locks/a"), process(t, s).Mutex("/locks/a")
		for _, locked := range []bool{true, false} {
			var elsewhere *tier.Hold
			if locked {
				elsewhere = acquire(t, other)
			}
			try, answer := hanging(soon(t), t, s, mu)
			waiter := start(soon(t), mu).blocked(t)
			close(answer)
			s.Script(nil)
			waiter.blocked(t)
			if <-try.done; locked {
				if !errors.Is(try.err, tier.ErrLocked) {
					t.Errorf("TryAcquire of a taken lock: got %v, want ErrLocked", try.err)
				}
				release(t, elsewhere)
			} else {
				release(t, try.granted(t))
			}
			release(t, waiter.granted(t))
		}
	})
}

// zkHanging starts a TryAcquire whose first read is answered only when answer is closed.
func zkHanging(ctx context.Context, t *testing.T, srv *zktest.Server, mu *tier.Mutex) (a *acquisition, answer chan struct{}) {
	t.Helper()
	answer = make(chan struct{})
	srv.Intercept(func(f *zktest.Frame) zktest.Action {
		if f.Stage == zktest.Reply && f.Op == zktest.OpGetChildren2 {
			<-answer
		}
		return zktest.Pass
	})
	a = &acquisition{done: make(chan struct{})}
	go func() {
		defer close(a.done)
		a.hold, a.err = mu.TryAcquire(ctx)
	}()
	return a.blocked(t), answer
}

// Its holder owes other processes what any owner does, however early somebody waited for it.
func TestBudgetRunsWhileTheHolderOfATryAcquireIsWaitedFor(t *testing.T) { // I11
	zkMetered(t, func(t *testing.T, s *zktest.Server, _ *zkMeter, process func(...tier.Option) *tier.Mutex) {
		mu, other := process(), process()
		try, answer := zkHanging(soon(t), t, s, mu)
		waiter := start(soon(t), mu).blocked(t)
		close(answer)
		hold := try.granted(t)
		next := start(soon(t), other).blocked(t)
		time.Sleep(time.Second) // far beyond the budget
		release(t, hold)
		waiter.blocked(t)
		release(t, next.granted(t))
		release(t, waiter.granted(t))
	})
}

func TestTryAcquireEndsWithItsContextAndLeavesNothing(t *testing.T) { // I5
	bubble(t, func(t *testing.T, s *memory.Server) {
		mu := process(t, s).Mutex("/locks/a")
		ctx, cancel := context.WithCancelCause(t.Context())
		try, answer := hanging(ctx, t, s, mu)
		reason := errors.New("reason")
		cancel(reason)
		if <-try.done; !errors.Is(try.err, reason) {
			t.Errorf("TryAcquire with a cancelled context: got %v, want %v", try.err, reason)
		}
		close(answer)
		synctest.Wait()
		if nodes := s.Queue("/locks/a"); len(nodes) != 0 {
			t.Errorf("left behind: %v", nodes)
		}
		release(t, acquire(t, mu))
	})
}
