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

func TestReleaseAtKeepsTheLockUntilThenWithoutWaiting(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		hold := acquire(t, process(t, s).Mutex("/locks/a"))
		other := process(t, s).Mutex("/locks/a")
		start := time.Now()
		if err := hold.ReleaseAt(start.Add(time.Minute)); err != nil || time.Since(start) != 0 {
			t.Errorf("ReleaseAt: %v after %v, want nil at once", err, time.Since(start))
		}
		if _, err := other.TryAcquire(t.Context()); !errors.Is(err, tier.ErrLocked) {
			t.Errorf("try before the time has come: %v, want ErrLocked", err)
		}
		if err := hold.Err(); err != nil {
			t.Errorf("hold before the time has come: %v, want nil", err)
		}
		next := acquire(t, other)
		if took := time.Since(start); took < time.Minute || took > time.Minute+time.Second {
			t.Errorf("the next process has the lock after %v, want a minute", took)
		}
		if err := hold.Err(); !errors.Is(err, tier.ErrReleased) {
			t.Errorf("hold after its time: %v, want ErrReleased", err)
		}
		release(t, next)
	})
}

func TestReleaseAtInThePastIsRelease(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks := process(t, s)
		hold := acquire(t, locks.Mutex("/locks/a"))
		if err := hold.ReleaseAt(time.Now()); err != nil || !errors.Is(hold.Err(), tier.ErrReleased) {
			t.Errorf("ReleaseAt: %v, the hold then: %v; want nil, ErrReleased", err, hold.Err())
		}
		if err := hold.ReleaseAt(time.Now()); !errors.Is(err, tier.ErrReleased) {
			t.Errorf("a second ReleaseAt: %v, want ErrReleased", err)
		}
		lost := acquire(t, locks.Mutex("/locks/a"))
		locks.Close()
		for _, when := range []time.Time{time.Now(), time.Now().Add(time.Minute)} {
			if err := lost.ReleaseAt(when); err == nil {
				t.Errorf("ReleaseAt of a closed registry's hold: nil, want an error")
			}
		}
	})
}

// A hold that was released early must not be watched until its time, nor may the end of that
// time concern a later hold.
func TestReleaseEndsAReleaseAt(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks := process(t, s)
		mu := locks.Mutex("/locks/a")
		early := acquire(t, mu)
		if err := early.ReleaseAt(time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		release(t, early)
		synctest.Wait()
		if left := tier.Stakes(locks); left != 0 {
			t.Errorf("%d paths in use after the release, want none", left)
		}
		later := acquire(t, mu)
		time.Sleep(2 * time.Hour)
		if err := later.Err(); err != nil {
			t.Errorf("the next hold, when the time of the first has come: %v, want nil", err)
		}
		release(t, later)
	})
}

// Whoever closes does not wait for minimum times.
func TestLossEndsAReleaseAt(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks := process(t, s)
		hold := acquire(t, locks.Mutex("/locks/a"))
		work := hold.Context(t.Context())
		if err := hold.ReleaseAt(time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		locks.Close()
		if took := time.Since(start); took > time.Minute {
			t.Errorf("Close took %v", took)
		}
		if cause := context.Cause(work); !errors.Is(cause, tier.ErrLost) {
			t.Errorf("the work ended with %v, want ErrLost", cause)
		}
	})
}

func TestShutdownWaitsForAReleaseAt(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks := process(t, s)
		hold := acquire(t, locks.Mutex("/locks/a"))
		start := time.Now()
		if err := hold.ReleaseAt(start.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		if err := locks.Shutdown(t.Context()); err != nil || time.Since(start) < time.Hour {
			t.Errorf("Shutdown: %v after %v, want nil after an hour", err, time.Since(start))
		}
		if err := hold.Err(); !errors.Is(err, tier.ErrReleased) {
			t.Errorf("the hold: %v, want ErrReleased", err)
		}
	})
}
