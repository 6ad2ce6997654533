package election_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tierlock/tierlock/election"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

// A blindTier is the tier of a process whose timers are late, as those of one that was stopped and continued: that its
// first lease is over is known only to who looks at the clock.
type blindTier struct {
	second.Tier
	valid atomic.Int64 // looks at the clock before it is over
	used  atomic.Bool
	stuck error // what the first Release returns, if anything
}

func (b *blindTier) Claim(path string, o second.Options) (second.Claim, error) {
	claim, err := b.Tier.Claim(path, o)
	return blindClaim{claim, b}, err
}

type blindClaim struct {
	second.Claim
	tier *blindTier
}

func (c blindClaim) Acquire(ctx context.Context, w *second.Wait) (second.Grant, error) {
	grant, err := c.Claim.Acquire(ctx, w)
	if c.tier.used.Swap(true) {
		return grant, err
	}
	return blindGrant{grant, c.tier}, err
}

type blindGrant struct {
	second.Grant
	tier *blindTier
}

func (g blindGrant) Err() error {
	if g.tier.valid.Add(-1) < 0 {
		return fmt.Errorf("the clock says: %w", second.ErrLost)
	}
	return g.Grant.Err()
}

func (g blindGrant) ErrAt(time.Duration) error { return g.Err() }

func (g blindGrant) Release() error {
	if err := g.Grant.Release(); g.tier.stuck == nil {
		return err
	}
	return g.tier.stuck
}

func blind(t *testing.T, srv *zktest.Server) (*election.Election, *blindTier) {
	t.Helper()
	client, err := zklock.Dial(t.Context(), "127.0.0.1:2181", zklock.WithDialContext(srv.DialContext))
	if err != nil {
		t.Fatal(err)
	}
	b := &blindTier{Tier: second.TierOf(client)}
	locks, err := tier.New(b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { locks.Close() })
	return election.New(locks, path), b
}

func TestLeaderLooksAtTheClock(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		e, tier := blind(t, srv)
		tier.valid.Store(100)
		err := e.Run(t.Context(), func(ctx context.Context, _ int64) error {
			if err := e.IsLeader(ctx); err != nil {
				t.Errorf("IsLeader: %v", err)
			}
			tier.valid.Store(0)
			if err := e.IsLeader(ctx); !errors.Is(err, election.ErrNotLeader) || !errors.Is(err, second.ErrLost) {
				t.Errorf("IsLeader when the lease is over: got %v, want ErrNotLeader and ErrLost", err)
			}
			if ctx.Err() != nil {
				t.Error("the context has ended, so this test shows nothing")
			}
			return election.ErrStop
		})
		if err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestNothingIsDoneInATermThatIsOver(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		e, tier := blind(t, srv)
		tier.valid.Store(1) // the one before the grant reaches whoever waits for it
		led := 0
		if err := e.Run(t.Context(), func(ctx context.Context, _ int64) error {
			led++
			if ctx.Err() != nil || e.IsLeader(ctx) != nil {
				t.Error("leads in a term that is over")
			}
			return election.ErrStop
		}); err != nil || led != 1 {
			t.Errorf("Run: %v, led %d times; want one term, the second", err, led)
		}
	})
}

func TestOneThatCannotResignSaysSo(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		e, tier := blind(t, srv)
		tier.valid.Store(100)
		tier.stuck = errors.New("no permission to delete")
		led := errors.New("a failure")
		terms := 0
		err := e.Run(t.Context(), func(context.Context, int64) error {
			if terms++; terms > 1 {
				return election.ErrStop
			}
			return led
		})
		if !errors.Is(err, tier.stuck) || !errors.Is(err, led) {
			t.Errorf("Run: got %v, want that it cannot resign, and the failure", err)
		}
	})
}
