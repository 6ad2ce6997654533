package memory_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/tiertest"
)

// The suite tiertest finds the defects of a tier, and none in a correct one. With a defective tier, only the tests that have to fail are
// run.
func TestTierSuiteFindsWhatIsWrong(t *testing.T) {
	type row struct {
		want []string // the tests of the suite that have to fail
		tier badTier
	}
	need.Each(t, map[string]row{
		"nothing": {nil, badTier{}},
		"a requeue in two writes": {[]string{"requeue-writes", "strict"}, badTier{
			requeue: func(ctx context.Context, c badClaim, old second.Grant) (second.Grant, error) {
				if err := old.Release(); errors.Is(err, second.ErrReleased) {
					return nil, err
				}
				return c.Claim.Acquire(ctx, c.wait)
			}}},
		"a requeue that keeps the grant when its context has ended": {[]string{"requeue-troubled"}, badTier{
			requeue: func(ctx context.Context, c badClaim, old second.Grant) (second.Grant, error) {
				if ctx.Err() != nil {
					return nil, context.Cause(ctx)
				}
				return c.Claim.Requeue(ctx, old, c.wait)
			}}},
		"waiters are never reported": {[]string{"contended", "contended-troubled", "readers-contended", "share-contended", "linger", "budget"},
			badTier{grant: func(g badGrant) second.Grant { return deaf{g, second.NewContention(func() {})} }}},
		"a waiter is always reported": {[]string{"contended", "uncontended", "readers-uncontended", "share-contended", "linger"},
			badTier{grant: func(g badGrant) second.Grant {
				s := second.NewContention(func() {})
				s.Raise(time.Now())
				return deaf{g, s}
			}}},
		"a writer is let in beside readers": {[]string{"readers-share", "readers-order", "readers-try", "readers-requeue", "readers-tokens"},
			badTier{
				mode: func(m second.Mode) second.Mode {
					if m == second.Writing {
						return second.Reading
					}
					return m
				},
				grant: func(g badGrant) second.Grant { return dishonest{g} },
			}},
		"readers keep each other out": {[]string{"readers-share", "readers-order", "readers-try", "readers-contended", "revoke-readers"},
			badTier{mode: func(m second.Mode) second.Mode { return min(m, second.Writing) }}},
		"a writer shares and waits for no contender": {[]string{"share", "share-ends"},
			badTier{grant: func(g badGrant) second.Grant { return generous{g} }}},
		"a writer that shares is contended by readers": {[]string{"share-contended"},
			badTier{grant: func(g badGrant) second.Grant { return deaf{g, g.Grant.Contended()} }}},
		"holders do not learn of a Revoke": {[]string{"revoke", "revoke-readers"},
			badTier{grant: func(g badGrant) second.Grant { return unasked{g} }}},
		"the context does not end": {
			[]string{"loss-cut", "loss-readers", "loss-frozen", "loss-stopped", "loss-release", "removal", "share-removal", "close", "hold-lost"},
			badTier{grant: func(g badGrant) second.Grant { return unending{g} }}},
		"the clock is never read": {[]string{"requeue-troubled", "loss-stopped", "release-once"},
			badTier{grant: func(g badGrant) second.Grant { return clockless{g} }}},
		"a lost grant comes back": {[]string{"loss-cut", "loss-frozen", "loss-stopped", "removal"},
			badTier{grant: func(g badGrant) second.Grant { return reviving{g} }}},
		"the lease ends before it is said to": {[]string{"loss-frozen"},
			badTier{grant: func(g badGrant) second.Grant { return hopeful{g} }}},
		"a release does not tell of the loss": {[]string{"loss-cut", "loss-frozen", "loss-stopped", "removal", "hold-lost"},
			badTier{grant: func(g badGrant) second.Grant { return forgetful{g, second.ErrLost} }}},
		"a release ends the context": {[]string{"no-loss"},
			badTier{grant: func(g badGrant) second.Grant {
				life, end := context.WithCancel(g.Grant.Context())
				return &alarm{g, life, end}
			}}},
		"a release can be repeated": {[]string{"loss-cut", "loss-frozen", "loss-stopped", "removal", "release-once"},
			badTier{grant: func(g badGrant) second.Grant { return forgetful{g, second.ErrReleased} }}},
		"a release waits for nothing": {[]string{"release-once"},
			badTier{grant: func(g badGrant) second.Grant { return hasty{g} }}},
		"a release waits for the store": {[]string{"bounds-cut", "bounds-frozen"},
			badTier{grant: func(g badGrant) second.Grant { return stubborn{g} }}},
		"no call waits for the end of a requeue": {[]string{"requeue-order"},
			badTier{grant: func(g badGrant) second.Grant { return impatient{g} }}},
		"a requeue keeps its token": {[]string{"requeue-writes", "requeue-order", "requeue-troubled", "tokens"}, badTier{
			requeue: func(ctx context.Context, c badClaim, old second.Grant) (second.Grant, error) {
				g, err := c.Claim.Requeue(ctx, old, c.wait)
				if err != nil {
					return nil, err
				}
				return cheap{badGrant{g, c.tier}, old.Token()}, nil
			}}},
		"a token comes twice": {[]string{"tokens", "readers-tokens"}, badTier{grant: func(g badGrant) second.Grant {
			return cheap{g, g.Grant.Token()/10 + 1}
		}}},
		"a caller leaves late": {[]string{"bounds-cut", "bounds-frozen", "bounds-messages"}, badTier{
			acquire: func(ctx context.Context, c badClaim) (second.Grant, error) {
				g, err := c.Claim.Acquire(ctx, c.wait)
				if err != nil && ctx.Err() != nil {
					time.Sleep(time.Second)
				}
				return g, err
			}}},
		"a caller leaves a contender": {
			[]string{"overtaking", "contended", "left-cancelled", "bounds-cut", "bounds-frozen", "bounds-messages"},
			badTier{acquire: func(ctx context.Context, c badClaim) (second.Grant, error) {
				return leaving(ctx, func(ctx context.Context) (second.Grant, error) { return c.Claim.Acquire(ctx, c.wait) })
			}}},
		"a try queues": {[]string{"try-writes"}, badTier{try: func(ctx context.Context, c badClaim) (second.Grant, error) {
			ctx, cancel := context.WithTimeout(ctx, time.Millisecond)
			defer cancel()
			g, err := c.Claim.Acquire(ctx, new(second.Wait))
			if errors.Is(err, context.DeadlineExceeded) && c.tier.Err() == nil {
				err = second.ErrLocked
			}
			return g, err
		}}},
		"a try reports a lock as taken if the store does not answer": {[]string{"unreachable"}, badTier{
			try: func(ctx context.Context, c badClaim) (second.Grant, error) {
				g, err := c.Claim.TryAcquire(ctx)
				if err != nil && !errors.Is(err, second.ErrClosed) {
					err = second.ErrLocked
				}
				return g, err
			}}},
		"waits have no standing": {[]string{"standing"}, badTier{wait: func(*second.Wait) *second.Wait { return new(second.Wait) }}},
		"one stands where it stood": {[]string{"standing"}, badTier{wait: func(w *second.Wait) *second.Wait {
			first := new(second.Wait)
			w.Stands(sync.OnceValue(func() second.Standing { return first.Standing() }))
			return first
		}}},
		"the queue is shown from its end": {[]string{"contenders"}, badTier{queue: func(queue []second.Contender) { slices.Reverse(queue) }}},
		"an expiry is not reported": {[]string{"connection"}, badTier{notify: func(c second.Connection, f func(second.Connection)) {
			if c.State != second.Expired {
				f(c)
			}
		}}},
		"several are told at a time": {[]string{"connection"}, badTier{
			notify: func(c second.Connection, f func(second.Connection)) { go f(c); f(c) }}},
		"a goroutine is left": {[]string{"close"}, badTier{close: func(t second.Tier) error {
			go time.Sleep(time.Minute)
			return t.Close()
		}}},
		"close can be called once": {[]string{"close"}, badTier{close: func(t second.Tier) error {
			if t.Err() != nil {
				return second.ErrClosed
			}
			return t.Close()
		}}},
	}, func(t *testing.T, c row) {
		if c.want != nil && !slices.Contains(c.want, "close") { // the promise "close" counts goroutines
			t.Parallel()
		}
		bites(t, c.want, func(p *tiertest.Process) {
			bad, blind := c.tier, p.Blind
			bad.Tier = p.Tier
			p.Tier = &bad
			p.Blind = func(g second.Grant) { blind(good(g)) }
		})
	})
}

// bites runs the suite with processes that spoil has changed, and checks that the tests in want fail. If want is empty, it runs the whole
// suite, and checks that all tests pass.
func bites(t *testing.T, want []string, spoil func(*tiertest.Process)) {
	t.Helper()
	table := tiertest.Judge(t, func(t *testing.T, test func(*testing.T, tiertest.Harness)) {
		inBubble(t, func(t *testing.T, h tiertest.Harness) {
			t.Cleanup(func() { time.Sleep(time.Hour); synctest.Wait() }) // waits until late commands are executed
			dial := h.Dial
			h.Dial = func(tb testing.TB, lease time.Duration) *tiertest.Process {
				p := dial(tb, lease)
				spoil(p)
				return p
			}
			test(t, h)
		})
	}, want...)
	got := table.Broken()
	missed := slices.ContainsFunc(want, func(test string) bool { return !slices.Contains(got, test) })
	if missed || want == nil && len(got) > 0 {
		t.Errorf("failed: %q, want %q", got, want)
		for _, row := range table {
			if row.Result != tiertest.Kept {
				t.Log(row.Test, row.Result)
			}
		}
	}
}

// On a busy machine it may take longer than a lease to stop the store. The lock is then lost before the store has stopped. The suite must
// not count that as a defect.
func TestTierSuiteFindsNothingWrongWithASlowMachine(t *testing.T) {
	table := tiertest.Judge(t, func(t *testing.T, test func(*testing.T, tiertest.Harness)) {
		inBubble(t, func(t *testing.T, h tiertest.Harness) {
			freeze := h.Freeze
			h.Freeze = func() func() {
				thaw := freeze()
				time.Sleep(h.Lease)
				return thaw
			}
			test(t, h)
		})
	}, "loss-frozen", "bounds-frozen")
	need.Empty(t, "failed", table.Broken())
}

// leaving calls f. If ctx ends first, leaving returns without waiting for f.
func leaving[T any](ctx context.Context, f func(context.Context) (T, error)) (none T, err error) {
	type result struct {
		got T
		err error
	}
	done := make(chan result, 1)
	go func() {
		got, err := f(context.WithoutCancel(ctx))
		done <- result{got, err}
	}()
	select {
	case r := <-done:
		return r.got, r.err
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}
