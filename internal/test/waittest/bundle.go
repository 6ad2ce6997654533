package waittest

import (
	"context"
	"testing"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
)

// A Guarded is a guarded write of a store that increments a counter, for tests of bundles.
type Guarded struct {
	Write func(tier.Guard) error
	Count func() int        // number of increments so far
	Break func(path string) // deletes the contender that has the lock at path, as an operator would
}

// ChecksAllLocks checks that a guarded write under a bundle depends on each lock of the bundle. It also checks that the write is refused
// under a bundle with other locks.
func (g Guarded) ChecksAllLocks(t *testing.T, locks, other *tier.Registry) {
	t.Helper()
	path := Path(t)
	first, last := locks.Mutex(path+"-a"), locks.Mutex(path+"-b")
	bundle := need.Get(tier.AcquireAll(Soon(t), last, first, last))(t)
	ctx := bundle.Context(Soon(t))
	need.WantErr(t, "a write under a bundle", g.Write(bundle), nil)
	need.WantErr(t, "a write under a hold of it", g.Write(tier.HoldFrom(ctx, first)), nil)
	need.Equal(t, "writes", g.Count(), 2)

	g.Break(last.Path())
	next := need.Get(other.Mutex(last.Path()).Acquire(Soon(t)))(t)
	alone := need.Get(first.Acquire(ctx))(t) // the first write may end this hold
	need.WantErr(t, "a write under a hold of one lock alone", g.Write(alone), nil)
	need.OK(t, alone.Release())
	for what, guard := range map[string]tier.Guard{
		"the bundle": bundle, "the hold of the other lock": bundle.Holds()[1], "that of the context": tier.HoldFrom(ctx, first),
	} {
		need.WantErr(t, "one lock is lost: a write under "+what, g.Write(guard), tier.ErrLost)
		need.WantErr(t, "Err", bundle.Err(), tier.ErrLost)
		need.WantMention(t, bundle.Err(), last.Path())
	}
	need.Equal(t, "writes", g.Count(), 3)
	need.WantErr(t, "the one whose lock it is", g.Write(next), nil)
	need.OK(t, next.Release())
	need.WantErr(t, "Release", bundle.Release(), tier.ErrLost)

	for what, guard := range map[string]tier.Guard{
		"a bundle that was released": bundle, "no hold": tier.HoldFrom(ctx, first), "no bundle": (*tier.Bundle)(nil), "nothing": nil,
	} {
		need.WantErr(t, "a write under "+what, g.Write(guard), tier.ErrReleased)
	}
	both := need.Get(tier.AcquireAll(Soon(t), first, other.Mutex(last.Path())))(t)
	need.WantMention(t, g.Write(both), "several registries", first.Path(), last.Path())
	need.OK(t, both.Release())
	none := need.Get(tier.AcquireAll(context.Background()))(t)
	need.WantMention(t, g.Write(none), "without locks")
	need.Equal(t, "writes in the end", g.Count(), 4)
}
