package tier_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/tier"
)

// waitError is the error of a wait for mu that lasts for two seconds.
func waitError(t *testing.T, ctx context.Context, mu *tier.Mutex) *tier.WaitError {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	hold, err := mu.Acquire(ctx)
	if err == nil {
		hold.Release()
		t.Fatal("got the lock")
	}
	wantErr(t, "a wait whose context ends", err, context.DeadlineExceeded)
	var wait *tier.WaitError
	if !errors.As(err, &wait) {
		t.Fatalf("no WaitError: %v", err)
	}
	if wait.Path != mu.Path() || wait.Waited.Round(100*time.Millisecond) != 2*time.Second {
		t.Errorf("%s waited for %v", wait.Path, wait.Waited)
	}
	return wait
}

func wantText(t *testing.T, err error, parts ...string) {
	t.Helper()
	if !strings.HasPrefix(err.Error(), "tier: acquire /locks/a: waited 2s: context deadline exceeded") {
		t.Errorf("error: %v", err)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %v: want it to say %q", err, part)
		}
	}
}

func TestWaitErrorNamesTheProcessThatHolds(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		holder, p := named(t, s, "billing"), process(t, s)
		hold := acquire(t, holder.Mutex("/locks/a"))
		mu := p.Mutex("/locks/a")
		for range 2 { // the second time the watch is there already
			err := waitError(t, t.Context(), mu)
			if err.Here != nil || err.Position != 1 || !err.AheadHolds || err.Ahead.Token != hold.Token() || err.Ahead.PID != os.Getpid() {
				t.Errorf("%+v", err)
			}
			wantText(t, err, fmt.Sprintf("; process %d on ", os.Getpid()), "(billing) has the lock, in the queue since 2000-01-01T00:00:00Z")
		}
		release(t, hold)
	})
}

func TestWaitErrorNamesTheProcessAhead(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		holder, second, p := process(t, s), named(t, s, "ahead"), process(t, s)
		hold := acquire(t, holder.Mutex("/locks/a"))
		ahead := start(soon(t), second.Mutex("/locks/a")).blocked(t)
		err := waitError(t, t.Context(), p.Mutex("/locks/a"))
		if err.Position != 2 || err.AheadHolds || err.Ahead.Label != "ahead" || err.Here != nil {
			t.Errorf("%+v", err)
		}
		wantText(t, err, "; 2 processes are ahead, of which the last is process ", "(ahead), in the queue since 2000-01-01T00:00:00Z")
		release(t, hold)
		release(t, ahead.granted(t))
	})
}

func TestWaitErrorTellsOfAnotherGoroutine(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		mu := process(t, s).Mutex("/locks/a")
		hold := acquire(t, mu)
		since := time.Now()
		time.Sleep(time.Minute)
		err := waitError(t, t.Context(), mu)
		if h := err.Here; h == nil || !h.Since.Equal(since) || h.Token != hold.Token() || h.Holds != 1 || h.Carried || err.Position != 0 {
			t.Errorf("%+v, here %+v", err, h)
		}
		wantText(t, err, "; another goroutine of this process has the lock, since 2000-01-01T00:00:00Z; or the caller has")
		release(t, hold)
	})
}

func TestWaitErrorTellsOfAnInnerHoldThatWasNotReleased(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		mu := process(t, s).Mutex("/locks/a")
		outer := acquire(t, mu)
		ctx := context.WithoutCancel(outer.Context(t.Context()))
		inner := start(ctx, mu).granted(t)
		release(t, outer)
		wait := waitError(t, ctx, mu)
		if h := wait.Here; h == nil || !h.Carried || h.Holds != 1 {
			t.Errorf("%+v, here %+v", wait, h)
		}
		wantText(t, wait, "; this process has the lock, since 2000-01-01T00:00:00Z: "+
			"the hold in the context of this call was released, and 1 that entered again not yet")
		release(t, inner)
	})
}

func TestWaitErrorSaysWhyTheStoreCannotBeReached(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks, p := dial(t, s, "")
		cut(p)
		err := waitError(t, t.Context(), locks.Mutex("/locks/a"))
		wantText(t, err, "memory cannot be reached")
	})
}

func TestWaitErrorAfterCloseAndAfterTheLimit(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		p := process(t, s)
		hold := acquire(t, p.Mutex("/locks/a"))
		var wait *tier.WaitError
		_, err := p.Mutex("/locks/a", tier.WithMaxWait(time.Second)).Acquire(t.Context())
		if !errors.As(err, &wait) || !errors.Is(err, tier.ErrWaitLimit) || wait.Here == nil {
			t.Errorf("after the limit: %v", err)
		}
		other := process(t, s)
		a := start(soon(t), other.Mutex("/locks/a")).blocked(t)
		other.Close()
		synctest.Wait()
		if !errors.As(a.err, &wait) || !errors.Is(a.err, tier.ErrClosed) {
			t.Errorf("after Close: %v", a.err)
		}
		release(t, hold)
	})
}

// An error that retrying cannot fix reaches everybody who waits for the same, of one attempt.
func TestPermanentErrorReachesEveryWaiterAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks := process(t, s)
		attempts := 0
		s.Script(func(_ string, c queue.Command) (f memory.Fault) {
			if c.Op == queue.Enter && c.Linger == 0 {
				attempts++
				time.Sleep(time.Second)
				f.Refused = queue.Denied
			}
			return f
		})
		var waiters []*call[*tier.Hold]
		for range 5 {
			waiters = append(waiters, start(soon(t), locks.Mutex("/locks/a")).blocked(t))
		}
		other := start(soon(t), locks.Mutex("/locks/a", tier.WithLinger(time.Second))).blocked(t)
		for i, w := range waiters {
			if <-w.done; w.err == nil || !strings.Contains(w.err.Error(), "refused") {
				t.Errorf("waiter %d: got %v, want the refusal", i, w.err)
			}
		}
		if attempts != 1 {
			t.Errorf("%d attempts, want one", attempts)
		}
		release(t, other.granted(t))
	})
}

func seclusion(length time.Duration) *second.QuarantineError {
	return &second.QuarantineError{Until: time.Now().Add(length), Reason: "the server is new"}
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
		q := seclusion(10 * time.Second)
		locks := specially(t, s, &special{quarantine: q})
		mu := locks.Mutex("/locks/a")
		wantQuarantine(t, locks.Err(), q)
		if errors.Is(locks.Err(), tier.ErrLocked) {
			t.Errorf("Err is about no lock: %v", locks.Err())
		}
		for _, err := range []error{errOf(mu.TryAcquire(t.Context())), errOf(locks.Semaphore(pool, 1).TryAcquire(t.Context(), 1))} {
			wantQuarantine(t, err, q)
			wantErr(t, "TryAcquire", err, tier.ErrLocked)
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
		wantErr(t, "Err after the quarantine", locks.Err(), nil)
		if wait := waitError(t, t.Context(), mu); wait.Quarantine != nil || wait.Here == nil {
			t.Errorf("%+v, want a wait for another goroutine", wait)
		}
		release(t, hold)
	})
}

// Whoever is yet to be seen in the queue knows of the quarantine all the same.
func TestWaitWhosePlaceIsUnknownTellsOfTheQuarantine(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		q := seclusion(10 * time.Second)
		locks := specially(t, s, &special{quarantine: q, unseen: true})
		wantQuarantine(t, waitError(t, t.Context(), locks.Mutex("/locks/a")), q)
	})
}

// Who is ahead has no lock, either.
func TestWaitInAQuarantineNamesNoHolder(t *testing.T) {
	q := seclusion(0)
	wait := tier.StandingWait(second.Standing{Ahead: 1, Nearest: second.Contender{PID: 7, Host: "there"}, Quarantine: q})
	err := &tier.WaitError{Wait: wait, Err: q.Explain(tier.ErrWaitLimit)}
	want := "tier: acquire : waited 0s: wait limit reached: " + q.Error() + "; process 7 on there is ahead"
	if wait.AheadHolds || err.Error() != want {
		t.Errorf("%v, want %q", err, want)
	}
	if wait := tier.StandingWait(second.Standing{Ahead: 1}); !wait.AheadHolds { // none is asked for: it matters to those who are first
		t.Errorf("%+v, want a wait for who has the lock", wait)
	}
}

func TestWaitForNobodyNamesNobody(t *testing.T) {
	err := &tier.WaitError{Wait: tier.Wait{Path: "/a", Waited: time.Second}, Err: tier.ErrWaitLimit}
	if want := "tier: acquire /a: waited 1s: wait limit reached"; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
}

// A holder that was granted the lock before keeps it, and can hand it off.
func TestQuarantineKeepsNobodyFromWhatItHolds(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		q := seclusion(0)
		locks := specially(t, s, &special{quarantine: q})
		hold := acquire(t, locks.Mutex("/locks/a"))
		q.Until = time.Now().Add(time.Minute)
		next := start(soon(t), locks.Mutex("/locks/a")).blocked(t)
		release(t, hold)
		release(t, next.granted(t))
		if time.Now().After(q.Until) {
			t.Errorf("the lock was not handed off in the quarantine")
		}
	})
}
