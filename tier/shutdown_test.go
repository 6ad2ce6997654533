package tier_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/tier"
)

// shutdown begins to shut locks down.
func shutdown(ctx context.Context, locks *tier.Registry) <-chan error {
	done := make(chan error, 1)
	go func() { done <- locks.Shutdown(ctx) }()
	synctest.Wait()
	return done
}

func TestShutdownLetsOwnersFinishAndNobodyElseIn(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks, others := process(t, s), process(t, s)
		mu := locks.Mutex("/locks/a", tier.WithHandOff(time.Hour))
		hold, taken := acquire(t, mu), acquire(t, others.Mutex("/locks/b"))
		defer release(t, taken)
		waiters := []*acquisition{start(soon(t), mu).blocked(t), start(soon(t), locks.Mutex("/locks/b")).blocked(t)}
		done := shutdown(soon(t), locks)
		for _, w := range waiters {
			<-w.done
			if wait := (*tier.WaitError)(nil); !errors.Is(w.err, tier.ErrClosed) || !errors.As(w.err, &wait) {
				t.Errorf("a waiter: got %v, want ErrClosed and a WaitError", w.err)
			}
		}
		if err := locks.Err(); !errors.Is(err, tier.ErrClosed) {
			t.Errorf("Err: got %v, want ErrClosed", err)
		}
		for _, path := range []string{"/locks/a", "/locks/new"} {
			if _, err := locks.Mutex(path).Acquire(t.Context()); !errors.Is(err, tier.ErrClosed) {
				t.Errorf("Acquire %s: got %v, want ErrClosed", path, err)
			}
			if _, err := locks.Mutex(path).TryAcquire(t.Context()); !errors.Is(err, tier.ErrClosed) {
				t.Errorf("TryAcquire %s: got %v, want ErrClosed", path, err)
			}
		}
		again, err := mu.Acquire(hold.Context(t.Context()))
		if err != nil {
			t.Fatalf("entering again: %v", err)
		}
		time.Sleep(time.Minute)
		if err := hold.Err(); err != nil {
			t.Errorf("the hold: %v", err)
		}
		release(t, hold)
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("Shutdown returned %v while a hold was left", err)
		default:
		}
		release(t, again)
		if err := <-done; err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		<-locks.Done()
		if err := locks.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}

func TestShutdownGivesALingeringNodeUp(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks := process(t, s)
		kept := locks.Mutex("/locks/kept")
		lingers := locks.Mutex("/locks/lingers", tier.WithLinger(time.Hour))
		idle := locks.Mutex("/locks/idle", tier.WithLinger(time.Hour))
		release(t, acquire(t, idle))
		hold, later := acquire(t, kept), acquire(t, lingers)
		done := shutdown(soon(t), locks)
		if n := len(s.Queue("/locks/idle")); n != 0 {
			t.Error("a node goes on lingering")
		}
		release(t, later)
		if n := len(s.Queue("/locks/lingers")); n != 0 {
			t.Error("a node begins to linger")
		}
		release(t, hold)
		if err := <-done; err != nil {
			t.Errorf("Shutdown: %v", err)
		}
	})
}

func TestShutdownEndsWithItsContextAndNamesWhatIsHeld(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks := process(t, s)
		hold := acquire(t, locks.Mutex("/locks/a"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := locks.Shutdown(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "/locks/a") {
			t.Errorf("got %v, want the deadline and the path", err)
		}
		if err := hold.Release(); !errors.Is(err, tier.ErrLost) {
			t.Errorf("Release: got %v, want ErrLost", err)
		}
		if n := len(s.Queue("/locks/a")); n != 0 {
			t.Errorf("%d nodes left", n)
		}
	})
}

func TestShutdownOfAnIdleOrClosedRegistryReturnsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		for _, close := range []bool{false, true} {
			locks := process(t, s)
			if close {
				locks.Close()
			}
			for range 2 {
				if err := locks.Shutdown(soon(t)); err != nil {
					t.Errorf("Shutdown: %v", err)
				}
			}
		}
	})
}

func TestCloseEndsAShutdown(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks := process(t, s)
		hold := acquire(t, locks.Mutex("/locks/a"))
		done := shutdown(soon(t), locks)
		locks.Close()
		if err := <-done; err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if err := hold.Release(); !errors.Is(err, tier.ErrLost) {
			t.Errorf("Release: got %v, want ErrLost", err)
		}
	})
}

// Between an arrival and its place in the queue, a shutdown may begin.
func TestShutdownTurnsAwayWhoIsAboutToQueue(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks := process(t, s)
		queue, try := tier.Arrive(locks.Mutex("/locks/a"))
		ctx, cancel := context.WithCancel(t.Context())
		done := shutdown(ctx, locks)
		for _, f := range []func(context.Context) error{queue, try} {
			if err := f(t.Context()); !errors.Is(err, tier.ErrClosed) {
				t.Errorf("got %v, want ErrClosed", err)
			}
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Shutdown: got %v, want Canceled", err)
		}
	})
}
