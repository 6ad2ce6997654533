package tier_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/tier"
)

func TestCloseLosesHoldsAndTurnsWaitersAway(t *testing.T) { // I10
	bubble(t, func(t *testing.T, s *memory.Server) {
		elsewhere := acquire(t, process(t, s).Mutex("/locks/elsewhere"))
		locks := process(t, s)
		hold := acquire(t, locks.Mutex("/locks/a"))
		ctx := hold.Context(t.Context())
		var waiters []*acquisition
		for range 10 {
			waiters = append(waiters,
				start(soon(t), locks.Mutex("/locks/a")).blocked(t),
				start(soon(t), locks.Mutex("/locks/elsewhere")).blocked(t))
		}
		began := time.Now()
		if err := locks.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		for i, w := range waiters {
			if <-w.done; !errors.Is(w.err, tier.ErrClosed) {
				t.Errorf("waiter %d: got %v, want ErrClosed", i, w.err)
			}
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("the waiters were turned away after %v, want at once", took)
		}
		lost(ctx, t, hold)
		if nodes := s.Queue("/locks/a"); len(nodes) != 0 {
			t.Errorf("nodes of a closed process: %v", nodes)
		}
		if err := hold.Release(); !errors.Is(err, tier.ErrLost) {
			t.Errorf("Release after Close: got %v, want ErrLost", err)
		}
		if n := tier.Stakes(locks); n != 0 {
			t.Errorf("%d entries in the closed registry, want 0", n)
		}
		release(t, elsewhere)
	})
}

func TestClosedRegistryRefusesEverything(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks := process(t, s)
		mu := locks.Mutex("/locks/a")
		for range 2 {
			if err := locks.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		}
		_, acquire := mu.Acquire(soon(t))
		_, try := mu.TryAcquire(soon(t))
		_, contenders := mu.Contenders(soon(t))
		do := mu.Do(soon(t), func(context.Context) error { t.Error("called"); return nil })
		for name, err := range map[string]error{"Acquire": acquire, "TryAcquire": try, "Contenders": contenders, "Do": do} {
			if !errors.Is(err, tier.ErrClosed) {
				t.Errorf("%s after Close: got %v, want ErrClosed", name, err)
			}
		}
	})
}

// The server decides when a session ends, but not when Close does.
func TestCloseIsBoundedWhenTheServerIsMute(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks := process(t, s)
		hold := acquire(t, locks.Mutex("/locks/a"))
		waiter := start(soon(t), locks.Mutex("/locks/a")).blocked(t)
		thaw := s.Freeze()
		began := time.Now()
		locks.Close()
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("Close took %v, want a few seconds", took)
		}
		if <-waiter.done; !errors.Is(waiter.err, tier.ErrClosed) {
			t.Errorf("waiter: got %v, want ErrClosed", waiter.err)
		}
		if err := hold.Release(); !errors.Is(err, tier.ErrLost) {
			t.Errorf("Release: got %v, want ErrLost", err)
		}
		thaw()
	})
}

// Close at any message of a turn that is under way: nobody hangs, nothing stays.
func TestCloseAtAnyMessageLeavesNothing(t *testing.T) { // I5 I10
	const enough = 40
	for at := range enough {
		reached := false
		bubble(t, func(t *testing.T, s *memory.Server) {
			locks, p := dial(t, s, "", tier.WithHandOff(0))
			mu := locks.Mutex("/locks/a")
			atMessage(s, at, func() {
				reached = true
				go locks.Close()
			}, p)
			for range 3 {
				go func() {
					err := mu.Do(context.Background(), func(context.Context) error { return nil })
					if err != nil && !errors.Is(err, tier.ErrClosed) && !errors.Is(err, tier.ErrLost) {
						t.Errorf("Do while closing: got %v, want ErrClosed or ErrLost", err)
					}
				}()
			}
			synctest.Wait()
			locks.Close()
			if nodes := s.Queue("/locks/a"); len(nodes) != 0 || tier.Stakes(locks) != 0 {
				t.Errorf("closed at message %d: left behind contenders %v, %d entries", at, nodes, tier.Stakes(locks))
			}
		})
		if !reached {
			return
		}
	}
	t.Errorf("three turns of more than %d messages?", enough)
}

func TestCloseFromAnObserverReturns(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		for _, from := range []string{"Lost", "Connection", "Shutdown"} {
			var locks *tier.Registry
			begin := make(chan struct{})
			closes := func() {
				<-begin
				if err := locks.Close(); err != nil {
					t.Errorf("Close from %s: %v", from, err)
				}
			}
			observer := map[string]tier.Observer{
				"Lost":       {Lost: func(context.Context, tier.LostEvent) { closes() }},
				"Connection": {Connection: func(tier.ConnectionEvent) { closes() }},
				"Shutdown": {Lost: func(_ context.Context, l tier.LostEvent) {
					if l.Hold == nil {
						return // it is shut down once
					}
					<-begin
					ctx, cancel := context.WithTimeout(context.Background(), time.Second)
					defer cancel()
					if err := locks.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("Shutdown of a lock that is held: %v", err)
					}
				}},
			}[from]
			locks = observed(t, s, observer)
			hold := acquire(t, locks.Mutex("/locks/a"))
			permits, err := locks.Semaphore("/permits", 3).Acquire(soon(t), 1)
			if err != nil {
				t.Fatal(err)
			}
			s.Remove("/locks/a", 0)
			s.Remove("permits of /permits", 0)
			close(begin)
			hold.Release()
			permits.Release()
			<-locks.Done()
			if err := locks.Close(); err != nil { // waits for all, elsewhere
				t.Error(err)
			}
		}
	})
}

func TestTryAfterCloseSaysSoWhileALostHoldIsLeft(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks := process(t, s)
		mu, sem := locks.Mutex("/locks/a"), locks.Semaphore("/permits", 1)
		hold := acquire(t, mu)
		permits, err := sem.Acquire(soon(t), 1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := mu.TryAcquire(soon(t)); !errors.Is(err, tier.ErrLocked) {
			t.Errorf("TryAcquire before Close: %v, want ErrLocked", err)
		}
		locks.Close()
		if _, err := mu.TryAcquire(soon(t)); !errors.Is(err, tier.ErrClosed) || errors.Is(err, tier.ErrLocked) {
			t.Errorf("TryAcquire: %v, want ErrClosed", err)
		}
		if _, err := sem.TryAcquire(soon(t), 1); !errors.Is(err, tier.ErrClosed) || errors.Is(err, tier.ErrLocked) {
			t.Errorf("TryAcquire of a permit: %v, want ErrClosed", err)
		}
		hold.Release()
		permits.Release()
	})
}
