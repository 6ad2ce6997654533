package election_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/tierlock/tierlock/election"
	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/locktest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/waittest"
	"github.com/tierlock/tierlock/tier"
)

// In a process that was stopped, timers fire late. Only a check of the clock shows at once that the lease has ended.
func TestLeaderLooksAtTheClock(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks, link := dial(t, s, "a")
		e := election.New(locks, path)
		err := e.Run(t.Context(), func(ctx context.Context, _ int64) error {
			locktest.WantErr(t, "IsLeader", e.IsLeader(), nil)
			waittest.Grant(tier.HoldFrom(ctx, locks.Mutex(path))).(*queue.Contender).StopWatchdog()
			link.Cut()
			time.Sleep(sessionTimeout)
			need.That(t, "the context has ended, so this test shows nothing", ctx.Err() == nil)
			need.WantErr(t, "IsLeader when the lease is over", e.IsLeader(), election.ErrNotLeader, second.ErrLost)
			return election.ErrStop
		})
		need.WantErr(t, "Run", err, nil)
	})
}

// Timers do not run while a machine sleeps. The first check after the sleep therefore has to end the context.
func TestLeaderWhoseMachineSleptForALeaseDoesNotLead(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks, _ := dial(t, s, "a")
		e := election.New(locks, path)
		err := e.Run(t.Context(), func(ctx context.Context, _ int64) error {
			waittest.Grant(tier.HoldFrom(ctx, locks.Mutex(path))).(*queue.Contender).Clock().Suspend(sessionTimeout)
			need.That(t, "the context has ended, so this test shows nothing", ctx.Err() == nil)
			need.WantErr(t, "IsLeader after the sleep", e.IsLeader(), election.ErrNotLeader, second.ErrLost)
			<-ctx.Done()
			need.WantErr(t, "the cause of the context", context.Cause(ctx), second.ErrLost)
			return election.ErrStop
		})
		need.WantErr(t, "Run", err, nil)
	})
}

func TestNothingIsDoneInATermThatIsOver(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		var lose sync.Once // called before the waiter gets the grant
		locks := registry(t, s, "a", tier.WithObserver(tier.Observer{Acquired: func(_ context.Context, a tier.AcquiredEvent) {
			lose.Do(func() {
				s.Expire(path, 0)
				<-a.Hold.Lost()
			})
		}}))
		e, led := election.New(locks, path), 0
		if err := e.Run(t.Context(), func(ctx context.Context, _ int64) error {
			led++
			need.That(t, "leads in a term that is over", ctx.Err() == nil && e.IsLeader() == nil)
			return election.ErrStop
		}); err != nil || led != 1 {
			t.Errorf("Run: %v, led %d times; want one term, the second", err, led)
		}
	})
}

func TestOneThatCannotResignSaysSo(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		s.Script(func(_ string, c queue.Command) (f memory.Fault) {
			if c.Op == queue.Leave {
				f.Refused = queue.Denied
			}
			return f
		})
		led := errors.New("a failure")
		terms := 0
		err := election.New(registry(t, s, "a"), path).Run(t.Context(), func(context.Context, int64) error {
			if terms++; terms > 1 {
				return election.ErrStop
			}
			return led
		})
		need.WantErr(t, "Run", err, led)
		need.WantMention(t, err, "leave refused")
	})
}
