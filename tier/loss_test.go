package tier_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/waittest"
	"github.com/tierlock/tierlock/tier"
)

// The sections of a lock never overlap within a process, even if the lease ends during the first section.
func TestGateStaysShutUntilTheLostHoldIsReleased(t *testing.T) { // I2
	bubble(t, func(t *testing.T, s *memory.Server) {
		mu := process(t, s).Mutex("/locks/a")
		hold := acquire(t, mu)
		inner := start(hold.Context(t.Context()), mu).granted(t)
		waiter := start(soon(t), mu).blocked(t)
		s.Expire("/locks/a", 0)
		<-hold.Lost()
		time.Sleep(10 * sessionTimeout) // time in which the waiter could get the lock by mistake; the time is virtual
		waiter.blocked(t)
		wantErr(t, "Release of the outer hold", hold.Release(), tier.ErrLost)
		waiter.blocked(t)
		wantErr(t, "Release of the inner hold", inner.Release(), tier.ErrLost)
		next := waiter.granted(t)
		wantErr(t, "the next owner", next.Err(), nil)
		need.AtLeast(t, "the token of the next owner", next.Token(), hold.Token()+1)
		release(t, next)
	})
}

// The timers of a suspended machine do not run. Therefore each method has to read a clock that includes the time of the suspension.
func TestNothingIsHeldAfterTheMachineSleptForALease(t *testing.T) {
	looks := map[string]func(t *testing.T, hold, inner *tier.Hold, permits *tier.Permits){
		"Err": func(t *testing.T, hold, inner *tier.Hold, permits *tier.Permits) {
			for _, err := range []error{hold.Err(), inner.Err(), permits.Err()} {
				wantErr(t, "Err", err, tier.ErrLost)
			}
		},
		"ValidUntil": func(t *testing.T, hold, inner *tier.Hold, permits *tier.Permits) {
			need.That(t, "valid", hold.ValidUntil().IsZero() && inner.ValidUntil().IsZero() && permits.ValidUntil().IsZero())
		},
		"Context": func(t *testing.T, hold, inner *tier.Hold, permits *tier.Permits) {
			for _, of := range []func(context.Context) context.Context{hold.Context, inner.Context, permits.Context} {
				wantErr(t, "Context", context.Cause(of(context.WithValue(t.Context(), t, nil))), tier.ErrLost)
			}
		},
		"Release": func(t *testing.T, hold, inner *tier.Hold, permits *tier.Permits) {
			for _, release := range []func() error{inner.Release, hold.Release, permits.Release} {
				wantErr(t, "Release", release(), tier.ErrLost)
			}
		},
		"none": func(*testing.T, *tier.Hold, *tier.Hold, *tier.Permits) {},
	}
	need.Each(t, looks, func(t *testing.T, look func(*testing.T, *tier.Hold, *tier.Hold, *tier.Permits)) {
		bubble(t, func(t *testing.T, s *memory.Server) {
			locks := process(t, s)
			hold := acquire(t, locks.Mutex("/locks/a"))
			inner := need.Get(locks.Mutex("/locks/a").Acquire(hold.Context(t.Context())))(t)
			permits := need.Get(locks.Semaphore("/locks/p", 2).Acquire(soon(t), 1))(t)
			outer := hold.Context(t.Context())
			waittest.Grant(hold).(*queue.Contender).Clock().Suspend(sessionTimeout)
			need.That(t, "lost before anything looks, so this test shows nothing", outer.Err() == nil)
			look(t, hold, inner, permits)
			time.Sleep(time.Second)
			need.That(t, "the context has not ended", outer.Err() != nil && permits.Context(t.Context()).Err() != nil)
			hold.Release()
			inner.Release()
			permits.Release()
		})
	})
}

// write starts a guarded write. The store answers the write when the test calls finish.
func write(t *testing.T, hold *tier.Hold) (finish func()) {
	t.Helper()
	c, answered := waittest.Grant(hold).(*queue.Contender), make(chan struct{})
	go c.Write(t.Context(), hold.Err, func() (queue.Outcome, error) {
		<-answered
		return queue.Done, nil
	})
	synctest.Wait()
	need.That(t, "no write has begun", !c.Idle())
	return func() {
		close(answered)
		synctest.Wait()
	}
}

// A guarded write checks its hold before the release, and its answer may arrive after the release. Until then, the contender of the write
// gets no other owner.
func TestWriteThatOverlapsTheReleaseTakesNoEffectUnderTheNextOwner(t *testing.T) {
	type row struct{ lingers, nested, queued bool }
	need.Each(t, map[string]row{
		"a process waits": {queued: true},
		"no process waits, and the contender may linger": {lingers: true},
		"the hold is an inner one, and a process waits":  {nested: true, queued: true},
	}, func(t *testing.T, c row) {
		metered(t, func(t *testing.T, _ *memory.Server, _ *meter, process func(...tier.Option) *tier.Mutex) {
			linger := time.Duration(0)
			if c.lingers {
				linger = time.Hour
			}
			mu := process(tier.WithHandOff(time.Hour), tier.WithLinger(linger))
			outer := acquire(t, mu)
			holds := []*tier.Hold{outer}
			if c.nested {
				inner := start(outer.Context(soon(t)), mu).granted(t)
				holds = []*tier.Hold{inner, outer}
			}
			var waiter *call[*tier.Hold]
			if c.queued {
				waiter = start(soon(t), mu).blocked(t)
			}
			finish := write(t, holds[0])
			for _, hold := range holds {
				release(t, hold)
			}
			if waiter == nil {
				waiter = start(soon(t), mu)
			}
			next := waiter.granted(t)
			need.That(t, "the next owner has the contender of the owner that was writing", next.Token() > outer.Token())
			finish()
			release(t, next)
		})
	})
}
