package tier_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zktest"
)

func TestUsedPathsLeaveNothingBehind(t *testing.T) { // I10
	zkBubble(t, func(t *testing.T, srv *zktest.Server) {
		const paths, goroutines = 1_000, 20
		locks := zkProcess(t, srv)
		ctx := soon(t)
		var wg sync.WaitGroup
		for g := range goroutines {
			wg.Go(func() {
				for i := g; i < paths; i += goroutines {
					hold, err := locks.Mutex(fmt.Sprint("/locks/", i)).Acquire(ctx)
					if err != nil {
						t.Error(err)
						return
					}
					release(t, hold)
				}
			})
		}
		wg.Wait()
		synctest.Wait()
		if n := tier.Stakes(locks); n != 0 {
			t.Errorf("%d entries in the registry after the last release, want 0", n)
		}
		if n := srv.Watches(); n != 0 {
			t.Errorf("%d watches after the last release, want 0", n)
		}
		time.Sleep(time.Minute) // virtual; the server looks every second
		synctest.Wait()
		if n := len(srv.Children("/locks")); n != 0 || srv.Exists("/locks") {
			t.Errorf("%d empty parents, want 0", n)
		}
	})
}

// An entry lives exactly as long as somebody holds the lock or waits for it.
func TestEntryLivesWhileHeldOrWaitedFor(t *testing.T) { // I10
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks, other := process(t, s), process(t, s)
		mu := locks.Mutex("/locks/a")
		entries := func(want int, when string) {
			t.Helper()
			synctest.Wait()
			if n := tier.Stakes(locks); n != want {
				t.Errorf("%d entries %s, want %d", n, when, want)
			}
		}
		entries(0, "for a mutex nobody uses")
		elsewhere := acquire(t, other.Mutex("/locks/a"))
		ctx, cancel := context.WithCancelCause(t.Context())
		waiter := start(ctx, mu).blocked(t)
		entries(1, "while one waits")
		cancel(errChangedMind)
		waiter.cancelled(t)
		entries(0, "after it gave up")
		if _, err := mu.TryAcquire(soon(t)); err == nil {
			t.Error("TryAcquire of a taken lock succeeded")
		}
		entries(0, "after TryAcquire failed")
		release(t, elsewhere)
		hold := acquire(t, mu)
		entries(1, "while held")
		inner, err := mu.Acquire(hold.Context(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		release(t, inner)
		entries(1, "after release of a nested hold")
		s.Expire("/locks/a", 0)
		<-hold.Lost()
		entries(1, "while a lost hold is not released")
		_ = hold.Release() // ErrLost
		entries(0, "after its release")
	})
}

func TestNegativeOptionsAreRefused(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		client := s.Dial("", sessionTimeout, nil)
		defer client.Close()
		synctest.Wait() // until it is connected
		for name, opt := range map[string]tier.Option{"hand-off": tier.WithHandOff(-1), "linger": tier.WithLinger(-1)} {
			if locks, err := tier.New(client, opt); err == nil || locks != nil {
				t.Errorf("New with a negative %s: got %v, %v; want an error", name, locks, err)
			}
		}
		if err := client.Err(); err != nil {
			t.Errorf("the client after wrong options: %v", err)
		}
	})
}
