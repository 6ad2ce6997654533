package tier_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/tier"
)

func TestHoldOfAnotherMutexDoesNotReenter(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks, other := process(t, s), process(t, s)
		a := acquire(t, locks.Mutex("/locks/a"))
		ctx := a.Context(soon(t))
		b := acquire(t, locks.Mutex("/locks/b"))
		anotherPath := start(ctx, locks.Mutex("/locks/b")).blocked(t)
		anotherProcess := start(ctx, other.Mutex("/locks/a")).blocked(t)
		release(t, b)
		release(t, anotherPath.granted(t))
		release(t, a)
		<-anotherProcess.done // its context has ended with a
		if !errors.Is(anotherProcess.err, tier.ErrReleased) {
			t.Errorf("Acquire with the context of a released hold: got %v, want ErrReleased", anotherProcess.err)
		}
	})
}

// A context that outlived its hold queues like any other.
func TestDeadHoldInDetachedContextQueues(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		mu := process(t, s).Mutex("/locks/a")
		dead := acquire(t, mu)
		ctx := context.WithoutCancel(dead.Context(t.Context()))
		release(t, dead)
		live := acquire(t, mu)
		waiter := start(ctx, mu).blocked(t)
		release(t, live)
		next := waiter.granted(t)
		if next.Token() <= live.Token() {
			t.Errorf("token after %d: got %d, want a higher one", live.Token(), next.Token())
		}
		release(t, next)
	})
}

// A dead hold is dead even while another hold of its ownership lives, and even if it
// died of loss.
func TestDetachedContextDoesNotReviveAHold(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		mu := process(t, s).Mutex("/locks/a")
		outer := acquire(t, mu)
		dead := context.WithoutCancel(outer.Context(soon(t)))
		inner, err := mu.Acquire(dead)
		if err != nil {
			t.Fatal(err)
		}
		release(t, outer)
		waiter := start(dead, mu).blocked(t)
		release(t, inner)
		lostHold := waiter.granted(t)
		dead = context.WithoutCancel(lostHold.Context(soon(t)))
		s.Expire("/locks/a", 0)
		<-lostHold.Lost()
		_ = lostHold.Release() // ErrLost
		next, err := mu.Acquire(dead)
		if err != nil {
			t.Fatalf("Acquire with a lost and released hold in a detached context: %v", err)
		}
		release(t, next)
	})
}

func TestGoroutinesSharingContextShareHold(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		mu := process(t, s).Mutex("/locks/a")
		hold := acquire(t, mu)
		ctx := hold.Context(t.Context())
		inside, all := make(chan struct{}), make(chan struct{})
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				inner, err := mu.Acquire(ctx)
				if err != nil {
					t.Errorf("Acquire with a shared context: %v", err)
					return
				}
				inside <- struct{}{}
				<-all // nobody leaves before everybody was in
				release(t, inner)
			})
		}
		for range 10 {
			<-inside
		}
		release(t, hold)
		if n := len(s.Queue("/locks/a")); n != 1 {
			t.Errorf("%d nodes while ten share the hold, want 1", n)
		}
		close(all)
		wg.Wait()
		if n := len(s.Queue("/locks/a")); n != 0 {
			t.Errorf("%d nodes after the last of ten, want 0", n)
		}
	})
}

func TestReentryFailsAfterLoss(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		mu := process(t, s).Mutex("/locks/a")
		hold := acquire(t, mu)
		ctx := hold.Context(t.Context())
		s.Expire("/locks/a", 0)
		<-hold.Lost()
		for name, ctx := range map[string]context.Context{"hold's": ctx, "detached": context.WithoutCancel(ctx)} {
			if _, err := mu.Acquire(ctx); !errors.Is(err, tier.ErrLost) {
				t.Errorf("Acquire after loss with the %s context: got %v, want ErrLost", name, err)
			}
			if _, err := mu.TryAcquire(ctx); !errors.Is(err, tier.ErrLost) {
				t.Errorf("TryAcquire after loss with the %s context: got %v, want ErrLost", name, err)
			}
		}
		if err := hold.Release(); !errors.Is(err, tier.ErrLost) {
			t.Errorf("Release after loss: got %v, want ErrLost", err)
		}
	})
}

func TestMutexesOfOnePathShareOneGate(t *testing.T) { // I3
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks := process(t, s)
		one, two := locks.Mutex("/locks/a"), locks.Mutex("/locks/a")
		hold := acquire(t, one)
		inner, err := two.Acquire(hold.Context(t.Context()))
		if err != nil {
			t.Fatalf("re-entry through another Mutex value: %v", err)
		}
		release(t, inner)
		waiter := start(soon(t), two).blocked(t)
		if n := len(s.Queue("/locks/a")); n != 1 {
			t.Errorf("%d nodes for two mutexes of one path, want 1", n)
		}
		release(t, hold)
		release(t, waiter.granted(t))
	})
}
