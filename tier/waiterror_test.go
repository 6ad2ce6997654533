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
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
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
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the error does not wrap that of the context: %v", err)
	}
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
		if strings.HasSuffix(err.Error(), ",") {
			t.Errorf("the error ends with a comma: %v", err)
		}
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

// The owner has not passed its context on: to the library it is another goroutine, so the error has to give the hint.
func TestWaitErrorHintsAtAContextThatWasNotPassedOn(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		mu := process(t, s).Mutex("/locks/a")
		if err := mu.Do(t.Context(), func(context.Context) error {
			wantText(t, waitError(t, t.Context(), mu), "; or the caller has, and did not pass the context of its hold")
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
}

func TestWaitErrorTellsOfAnInnerHoldThatWasNotReleased(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		mu := process(t, s).Mutex("/locks/a")
		outer := acquire(t, mu)
		ctx := context.WithoutCancel(outer.Context(t.Context()))
		inner, err := mu.Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		release(t, outer)
		wait := waitError(t, ctx, mu)
		if h := wait.Here; h == nil || !h.Carried || h.Holds != 1 {
			t.Errorf("%+v, here %+v", wait, h)
		}
		wantText(t, wait, "; this process has the lock, since 2000-01-01T00:00:00Z: the hold in the context of this call was released, and 1 that entered again not yet")
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

func TestWaitErrorOnARealServer(t *testing.T) {
	addr := realServer(t)
	holder, p := zkDial(t, addr, zklock.WithLabel("billing")), zkDial(t, addr)
	path := "/locks/" + t.Name()
	hold := acquire(t, holder.Mutex(path))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := p.Mutex(path).Acquire(ctx)
	var wait *tier.WaitError
	if !errors.As(err, &wait) || !wait.AheadHolds || wait.Ahead.Label != "billing" || wait.Ahead.Token != hold.Token() || time.Since(wait.Ahead.Since) > time.Minute {
		t.Errorf("%v: %+v", err, wait)
	}
	release(t, hold)
}
