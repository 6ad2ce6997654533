package tier_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/tier"
)

// lost checks everything that a hold of a lost lock says.
func lost(ctx context.Context, t *testing.T, hold *tier.Hold) {
	t.Helper()
	<-hold.Lost()
	if <-ctx.Done(); !errors.Is(context.Cause(ctx), tier.ErrLost) {
		t.Errorf("cause of the hold's context: got %v, want ErrLost", context.Cause(ctx))
	}
	if err := hold.Err(); !errors.Is(err, tier.ErrLost) {
		t.Errorf("Err: got %v, want ErrLost", err)
	}
}

func TestExpiredSessionEndsEveryHoldOnce(t *testing.T) { // I7
	bubble(t, func(t *testing.T, s *memory.Server) {
		mu := process(t, s).Mutex("/locks/a")
		outer := acquire(t, mu)
		outerCtx := outer.Context(t.Context())
		inner, err := mu.Acquire(outerCtx)
		if err != nil {
			t.Fatal(err)
		}
		innerCtx := inner.Context(t.Context())
		s.Expire("/locks/a", 0)
		lost(outerCtx, t, outer)
		lost(innerCtx, t, inner)
		lost(inner.Context(t.Context()), t, inner)
		for name, hold := range map[string]*tier.Hold{"outer": outer, "inner": inner} {
			if err := hold.Release(); !errors.Is(err, tier.ErrLost) {
				t.Errorf("Release of the %s hold: got %v, want ErrLost", name, err)
			}
			if err := hold.Release(); !errors.Is(err, tier.ErrReleased) {
				t.Errorf("second Release of the %s hold: got %v, want ErrReleased", name, err)
			}
		}
		next := acquire(t, mu)
		if next.Token() <= outer.Token() {
			t.Errorf("token after loss: got %d, want above %d", next.Token(), outer.Token())
		}
		release(t, next)
	})
}

// A process never runs two sections at once, lease or no lease.
func TestGateStaysShutUntilTheLostHoldIsReleased(t *testing.T) { // I2
	bubble(t, func(t *testing.T, s *memory.Server) {
		mu := process(t, s).Mutex("/locks/a")
		hold := acquire(t, mu)
		inner, err := mu.Acquire(hold.Context(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		waiter := start(soon(t), mu).blocked(t)
		s.Expire("/locks/a", 0)
		<-hold.Lost()
		time.Sleep(10 * sessionTimeout) // time enough for anybody who does not care; virtual
		waiter.blocked(t)
		if err := hold.Release(); !errors.Is(err, tier.ErrLost) {
			t.Errorf("Release of the outer hold: got %v, want ErrLost", err)
		}
		waiter.blocked(t)
		if err := inner.Release(); !errors.Is(err, tier.ErrLost) {
			t.Errorf("Release of the inner hold: got %v, want ErrLost", err)
		}
		next := waiter.granted(t)
		if next.Err() != nil || next.Token() <= hold.Token() {
			t.Errorf("next owner: err %v, token %d; want a node of its own, above %d", next.Err(), next.Token(), hold.Token())
		}
		release(t, next)
	})
}

func TestWaiterSurvivesTheExpiryOfItsSession(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		holder, mu := process(t, s).Mutex("/locks/a"), process(t, s).Mutex("/locks/a")
		hold := acquire(t, holder)
		waiters := []*acquisition{start(soon(t), mu).blocked(t), start(soon(t), mu).blocked(t)}
		old := s.Queue("/locks/a")[1]
		s.Expire("/locks/a", 1)
		time.Sleep(sessionTimeout) // virtual
		synctest.Wait()
		if queue := s.Queue("/locks/a"); len(queue) != 2 || queue[1].ID == old.ID {
			t.Errorf("queue: %v, want a new contender in the place of %v", queue, old)
		}
		release(t, hold)
		for _, w := range waiters {
			w := w.granted(t)
			if w.Err() != nil {
				t.Errorf("Err of the next owner: %v", w.Err())
			}
			release(t, w)
		}
	})
}

func TestNodeDeletedBySomebodyElseIsLoss(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		mu := process(t, s).Mutex("/locks/a")
		hold := acquire(t, mu)
		ctx := hold.Context(t.Context())
		waiter := start(soon(t), mu).blocked(t)
		<-time.After(sessionTimeout / 6) // from then on its end is heard of
		synctest.Wait()
		began := time.Now()
		s.Remove("/locks/a", 0)
		lost(ctx, t, hold)
		if waited := time.Since(began); waited != 0 {
			t.Errorf("the loss was noticed after %v, want at once", waited)
		}
		waiter.blocked(t)
		if err := hold.Release(); !errors.Is(err, tier.ErrLost) {
			t.Errorf("Release: got %v, want ErrLost", err)
		}
		release(t, waiter.granted(t))
	})
}

// Cut off from the server, the owner knows before anybody else can own the lock.
func TestOwnerKnowsOfItsLossBeforeTheNextIsGranted(t *testing.T) { // I1 I7
	for name, fault := range map[string]memory.Fault{"no command arrives": {Never: true}, "no answer does": {Lost: true}} {
		bubble(t, func(t *testing.T, s *memory.Server) {
			mu, other := named(t, s, "first").Mutex("/locks/a"), process(t, s).Mutex("/locks/a")
			hold := acquire(t, mu)
			ctx := hold.Context(t.Context())
			next := start(soon(t), other).blocked(t)
			known := make(chan error, 1)
			go func() {
				<-next.done
				known <- hold.Err()
			}()
			time.Sleep(sessionTimeout) // virtual
			s.Script(func(process string, _ queue.Command) (f memory.Fault) {
				if process == "first" {
					f = fault
				}
				return f
			})
			cut := time.Now()
			lost(ctx, t, hold)
			if took := time.Since(cut); took > sessionTimeout-sessionTimeout/3 {
				t.Errorf("%s: the loss was known after %v, want by the end of the lease", name, took)
			}
			if fault.Lost { // its commands go on and keep the session alive
				s.Expire("/locks/a", 0)
			}
			release(t, next.granted(t))
			if err := <-known; !errors.Is(err, tier.ErrLost) {
				t.Errorf("%s: first owner when the next one was granted: got %v, want ErrLost", name, err)
			}
			if err := hold.Release(); !errors.Is(err, tier.ErrLost) {
				t.Errorf("%s: Release: got %v, want ErrLost", name, err)
			}
		})
	}
}
