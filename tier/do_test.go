package tier_test

import (
	"context"
	"errors"
	"testing"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/tier"
)

func TestDoRunsUnderTheLock(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		mu := process(t, s).Mutex("/locks/a")
		var inside context.Context
		err := mu.Do(soon(t), func(ctx context.Context) error {
			inside = ctx
			hold := tier.HoldFrom(ctx, mu)
			if hold == nil || hold.Err() != nil {
				t.Errorf("HoldFrom inside Do: %v, want the hold", hold)
			}
			if n := len(s.Queue("/locks/a")); n != 1 {
				t.Errorf("%d nodes inside Do, want 1", n)
			}
			return mu.Do(ctx, func(context.Context) error { return nil }) // enters again
		})
		if err != nil {
			t.Errorf("Do: %v", err)
		}
		if hold := tier.HoldFrom(inside, mu); hold != nil {
			t.Errorf("HoldFrom after Do: %v, want none", hold)
		}
		if !errors.Is(context.Cause(inside), tier.ErrReleased) {
			t.Errorf("cause of the context after Do: got %v, want ErrReleased", context.Cause(inside))
		}
		if n := len(s.Queue("/locks/a")); n != 0 {
			t.Errorf("%d nodes after Do, want 0", n)
		}
	})
}

func TestDoJoinsTheErrorsOfFunctionAndRelease(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		mu := process(t, s).Mutex("/locks/a")
		failed := errors.New("failed")
		err := mu.Do(soon(t), func(ctx context.Context) error {
			s.Expire("/locks/a", 0)
			<-ctx.Done()
			return failed
		})
		if !errors.Is(err, failed) || !errors.Is(err, tier.ErrLost) {
			t.Errorf("Do: got %v, want the function's error and ErrLost", err)
		}
	})
}

func TestDoReleasesOnPanic(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		mu := process(t, s).Mutex("/locks/a")
		func() {
			defer func() {
				if r := recover(); r != "oops" {
					t.Errorf("recovered %v, want the panic of the function", r)
				}
			}()
			_ = mu.Do(soon(t), func(context.Context) error { panic("oops") })
		}()
		if n := len(s.Queue("/locks/a")); n != 0 {
			t.Errorf("%d nodes after a panic, want 0", n)
		}
		release(t, acquire(t, mu))
	})
}

func TestDoWithoutTheLockDoesNotCallTheFunction(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		mu := process(t, s).Mutex("/locks/a")
		hold := acquire(t, mu)
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errChangedMind)
		err := mu.Do(ctx, func(context.Context) error {
			t.Error("the function was called without the lock")
			return nil
		})
		if !errors.Is(err, errChangedMind) {
			t.Errorf("Do: got %v, want the error of Acquire", err)
		}
		release(t, hold)
	})
}
