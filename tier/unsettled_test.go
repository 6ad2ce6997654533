package tier_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/memlock"
	"github.com/tierlock/tierlock/tier"
)

// A holder may be unsure whether its last write was executed. The next owner then needs a higher token, even in the same process. An idle
// lock must not linger either, because the next owner would get its old token.
func TestNextOwnerAfterAnUnsettledReleaseHasAHigherToken(t *testing.T) {
	release := map[string]func(context.Context, *tier.Mutex, *tier.Hold) error{
		"hold": func(_ context.Context, _ *tier.Mutex, h *tier.Hold) error { return h.ReleaseUnsettled() },
		"nested hold": func(ctx context.Context, m *tier.Mutex, h *tier.Hold) error {
			need.OK(t, need.Get(m.Acquire(h.Context(ctx)))(t).ReleaseUnsettled())
			return h.Release()
		},
	}
	for name, release := range release {
		for _, waits := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				twoProcesses(t, func(t *testing.T, _ *memlock.Server, a, _ *tier.Registry) {
					mu := a.Mutex("/a", tier.WithLinger(time.Minute))
					hold := need.Get(mu.Acquire(t.Context()))(t)
					next := make(chan *tier.Hold, 1)
					acquire := func() { next <- need.Get(mu.Acquire(t.Context()))(t) }
					if waits {
						go acquire()
						synctest.Wait()
					}
					need.OK(t, release(t.Context(), mu, hold))
					if !waits {
						acquire()
					}
					later := <-next
					need.That(t, "the token is not higher", later.Token() > hold.Token())
					need.OK(t, later.Release())
					need.WantErr(t, "second release", hold.ReleaseUnsettled(), tier.ErrReleased)
				})
			})
		}
	}
}

func TestNextOwnersAfterAnUnsettledReleaseOfABundleHaveHigherTokens(t *testing.T) {
	twoProcesses(t, func(t *testing.T, _ *memlock.Server, a, _ *tier.Registry) {
		one, two := a.Mutex("/a"), a.Mutex("/b")
		take := func() (*tier.Bundle, int64, int64) {
			b := need.Get(tier.AcquireAll(t.Context(), one, two))(t)
			return b, b.Holds()[0].Token(), b.Holds()[1].Token()
		}
		bundle, x, y := take()
		again := make(chan struct{})
		go func() {
			defer close(again)
			bundle, p, q := take()
			need.That(t, "a token is not higher", p > x && q > y)
			need.OK(t, bundle.Release())
		}()
		synctest.Wait()
		need.OK(t, bundle.ReleaseUnsettled())
		<-again
		need.WantErr(t, "second release", bundle.ReleaseUnsettled(), tier.ErrReleased)
	})
}
