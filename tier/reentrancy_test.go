package tier_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/tier"
)

func TestNestedHoldsReleaseInAnyOrderAndTheLastReleasesTheLock(t *testing.T) {
	orders := [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}
	bubble(t, func(t *testing.T, s *memory.Server) {
		mu := process(t, s).Mutex("/locks/a")
		for _, order := range orders {
			outer := acquire(t, mu)
			ctx := outer.Context(t.Context())
			holds := []*tier.Hold{outer}
			for range 2 {
				inner, err := mu.Acquire(ctx)
				if err != nil {
					t.Fatalf("nested Acquire: %v", err)
				}
				if inner == outer || inner.Token() != outer.Token() {
					t.Errorf("nested Acquire: want a hold of its own with the token %d", outer.Token())
				}
				ctx = inner.Context(t.Context())
				holds = append(holds, inner)
			}
			for i, which := range order {
				if n := len(s.Queue("/locks/a")); n != 1 {
					t.Errorf("order %v: %d nodes before release %d, want 1", order, n, i)
				}
				release(t, holds[which])
			}
			if n := len(s.Queue("/locks/a")); n != 0 {
				t.Errorf("order %v: %d nodes after the last release, want 0", order, n)
			}
		}
	})
}

func TestReentrySendsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		mu := process(t, s).Mutex("/locks/a")
		hold := acquire(t, mu)
		var m meter
		s.Script(m.note)
		for _, enter := range []func(context.Context) (*tier.Hold, error){mu.Acquire, mu.TryAcquire} {
			inner, err := enter(hold.Context(t.Context()))
			if err != nil {
				t.Fatal(err)
			}
			release(t, inner)
		}
		synctest.Wait()
		if ops := m.take(); len(ops) != 0 {
			t.Errorf("re-entry and release sent %v, want nothing", ops)
		}
		release(t, hold)
	})
}

// A release too many must never touch what the next owner has.
func TestReleaseTooManySendsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		mu := process(t, s).Mutex("/locks/a")
		hold := acquire(t, mu)
		inner, err := mu.Acquire(hold.Context(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		release(t, inner)
		if err := inner.Release(); !errors.Is(err, tier.ErrReleased) {
			t.Errorf("second Release of the inner hold: got %v, want ErrReleased", err)
		}
		if err := hold.Err(); err != nil {
			t.Errorf("a release too many ended the outer hold: %v", err)
		}
		release(t, hold)
		next := acquire(t, mu)
		synctest.Wait()

		var m meter
		s.Script(m.note)
		for range 3 {
			if err := hold.Release(); !errors.Is(err, tier.ErrReleased) {
				t.Errorf("second Release: got %v, want ErrReleased", err)
			}
		}
		synctest.Wait()
		if ops := m.take(); len(ops) != 0 {
			t.Errorf("releases too many sent %v, want nothing", ops)
		}
		release(t, next)
	})
}

func TestConcurrentReleasesOfOneHoldReleaseItOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		mu := process(t, s).Mutex("/locks/a")
		for range 50 {
			hold := acquire(t, mu)
			inner, err := mu.Acquire(hold.Context(t.Context()))
			if err != nil {
				t.Fatal(err)
			}
			errs := make([]error, 8)
			var wg sync.WaitGroup
			for i := range errs {
				wg.Go(func() { errs[i] = inner.Release() })
			}
			wg.Wait()
			succeeded := 0
			for _, err := range errs {
				if err == nil {
					succeeded++
				} else if !errors.Is(err, tier.ErrReleased) {
					t.Errorf("Release: got %v, want nil or ErrReleased", err)
				}
			}
			if succeeded != 1 || hold.Err() != nil {
				t.Fatalf("%d of 8 releases succeeded, outer hold %v; want 1, nil", succeeded, hold.Err())
			}
			release(t, hold)
		}
	})
}

// What re-enters is the ownership: it lives on after the hold that was there first.
func TestInnerHoldReentersAfterOuterIsReleased(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		mu := process(t, s).Mutex("/locks/a")
		outer := acquire(t, mu)
		outerCtx := outer.Context(t.Context())
		inner, err := mu.Acquire(outerCtx)
		if err != nil {
			t.Fatal(err)
		}
		release(t, outer)
		if _, err := mu.Acquire(outerCtx); !errors.Is(err, tier.ErrReleased) {
			t.Errorf("Acquire with the released hold's context: got %v, want ErrReleased", err)
		}
		third, err := mu.Acquire(inner.Context(t.Context()))
		if err != nil {
			t.Fatalf("Acquire with the live hold's context: %v", err)
		}
		release(t, inner)
		if n := len(s.Queue("/locks/a")); n != 1 {
			t.Errorf("%d nodes while one hold is left, want 1", n)
		}
		release(t, third)
	})
}
