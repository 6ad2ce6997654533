package tier_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/tier"
)

// A newStore is a tier whose store grants nothing until a time.
type newStore struct {
	second.Tier
	quarantine *second.QuarantineError
	unseen     bool // who waits knows nothing of its place
}

func (s newStore) Quarantine() *second.QuarantineError {
	if time.Now().Before(s.quarantine.Until) {
		return s.quarantine
	}
	return nil
}

func (s newStore) Claim(path string, o second.Options) (second.Claim, error) {
	c, err := s.Tier.Claim(path, o)
	return newClaim{c, s}, err
}

type newClaim struct {
	second.Claim
	store newStore
}

func (c newClaim) Acquire(ctx context.Context, w *second.Wait) (second.Grant, error) {
	if !c.store.unseen {
		w.Stands(func() second.Standing { return second.Standing{Quarantine: c.store.Quarantine()} })
	}
	if err := retry.Pause(ctx, time.Until(c.store.quarantine.Until)); err != nil {
		return nil, err
	}
	return c.Claim.Acquire(ctx, w)
}

func (c newClaim) TryAcquire(ctx context.Context) (second.Grant, error) {
	if q := c.store.Quarantine(); q != nil {
		return nil, q.Locked()
	}
	return c.Claim.TryAcquire(ctx)
}

func seclusion(length time.Duration) *second.QuarantineError {
	return &second.QuarantineError{Until: time.Now().Add(length), Reason: "the server is new"}
}

// quarantined returns the locks of a process, and the quarantine of its store.
func quarantined(t *testing.T, s *memory.Server, n newStore) (*tier.Registry, *second.QuarantineError) {
	t.Helper()
	n.Tier = s.Dial("", sessionTimeout, nil)
	locks, err := tier.New(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { locks.Close() })
	return locks, n.quarantine
}

// wantQuarantine checks that an error is one of a quarantine.
func wantQuarantine(t *testing.T, err error, want *second.QuarantineError) {
	t.Helper()
	var q *tier.QuarantineError
	if !errors.As(err, &q) || !q.Until.Equal(want.Until) || q.Reason != want.Reason {
		t.Errorf("error %v, want one of %v", err, want)
	}
}

func TestQuarantineIsToldByTryByWaitAndByErr(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks, q := quarantined(t, s, newStore{quarantine: seclusion(10 * time.Second)})
		mu := locks.Mutex("/locks/a")
		wantQuarantine(t, locks.Err(), q)
		if errors.Is(locks.Err(), tier.ErrLocked) {
			t.Errorf("Err is about no lock: %v", locks.Err())
		}
		_, err := mu.TryAcquire(t.Context())
		wantQuarantine(t, err, q)
		if !errors.Is(err, tier.ErrLocked) {
			t.Errorf("TryAcquire: %v, want ErrLocked", err)
		}
		wait := waitError(t, t.Context(), mu)
		wantQuarantine(t, wait, q)
		wantText(t, wait, ": no grants until "+q.Until.Format(time.TimeOnly)+": the server is new")
		if wait.Quarantine != q || wait.Position != 0 || wait.AheadHolds || errors.Is(wait, tier.ErrLocked) {
			t.Errorf("%+v", wait)
		}

		hold := acquire(t, mu)
		if time.Now().Before(q.Until) {
			t.Errorf("granted in the quarantine")
		}
		if err := locks.Err(); err != nil {
			t.Errorf("Err after the quarantine: %v", err)
		}
		if wait := waitError(t, t.Context(), mu); wait.Quarantine != nil || wait.Here == nil {
			t.Errorf("%+v, want a wait for another goroutine", wait)
		}
		release(t, hold)
	})
}

// Whoever is yet to be seen in the queue knows of the quarantine all the same.
func TestWaitWhosePlaceIsUnknownTellsOfTheQuarantine(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks, q := quarantined(t, s, newStore{quarantine: seclusion(10 * time.Second), unseen: true})
		wantQuarantine(t, waitError(t, t.Context(), locks.Mutex("/locks/a")), q)
	})
}

// Who is ahead has no lock, either.
func TestWaitInAQuarantineNamesNoHolder(t *testing.T) {
	q := seclusion(0)
	wait := tier.StandingWait(second.Standing{Ahead: 1, Nearest: second.Contender{PID: 7, Host: "there"}, Quarantine: q})
	err := &tier.WaitError{Wait: wait, Err: q.Explain(tier.ErrWaitLimit)}
	if want := ": wait limit reached: " + q.Error() + "; process 7 on there is ahead"; wait.AheadHolds || err.Error() != "tier: acquire : waited 0s"+want {
		t.Errorf("%v, want %q", err, want)
	}
}

// A holder that was granted the lock before keeps it, and can hand it on.
func TestQuarantineIsNoSuspension(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks, q := quarantined(t, s, newStore{quarantine: seclusion(0)})
		hold := acquire(t, locks.Mutex("/locks/a"))
		q.Until = time.Now().Add(time.Minute)
		next := start(soon(t), locks.Mutex("/locks/a")).blocked(t)
		if hold.Suspended() {
			t.Errorf("a hold is suspended by a quarantine")
		}
		release(t, hold)
		release(t, next.granted(t))
		if time.Now().After(q.Until) {
			t.Errorf("the lock was not handed on in the quarantine")
		}
	})
}
