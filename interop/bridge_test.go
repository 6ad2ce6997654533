package interop_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
)

// keepPath makes the lock path one that stays, which kazoo counts on.
func (e *ensemble) keepPath(t *testing.T) {
	t.Helper()
	e.remove(t, e.create(t, "first", zk.FlagEphemeral))
}

func TestBridgedTierAndKazooAsItComesExcludeEachOther(t *testing.T) {
	t.Parallel()
	e := newEnsemble(t)
	e.keepPath(t)
	mu := e.tier(t, zklock.WithKazoo())
	for _, d := range launch(t, e, sessionTimeout, "kazoo-default", "kazoo-read", "kazoo", "curator") {
		hold := acquire(t, mu)
		d.excluded(t)
		release(t, hold)

		d.acquire(t)
		if hold, err := mu.TryAcquire(soon(t)); !errors.Is(err, tier.ErrLocked) {
			t.Errorf("TryAcquire while %s has the lock: got %v, %v; want %v", d.kind, hold, err, tier.ErrLocked)
		}
		a := start(soon(t), mu)
		e.awaitChildren(t, 3)
		d.release(t)
		release(t, a.granted(t))
		e.awaitChildren(t, 0)
	}
}

// The bridge excludes each of its two sides, not one side from the other.
func TestDefaultKazooExcludesNobodyElseForTheBridge(t *testing.T) {
	t.Parallel()
	e := newEnsemble(t)
	e.keepPath(t)
	a := start(soon(t), e.tier(t, zklock.WithKazoo()))
	release(t, a.granted(t))
	drivers := launch(t, e, sessionTimeout, "curator", "kazoo-default")
	drivers[0].acquire(t)
	if drivers[1].do(t, "acquire 10000").TimedOut {
		t.Error("kazoo waited for Curator: the documentation says that it does not")
	}
}

// In each of these mixes everybody excludes everybody.
func TestBridgedShareOnePath(t *testing.T) {
	t.Parallel()
	for _, kinds := range [][]string{
		{"kazoo-default", "kazoo-default", "tier-kazoo", "tier-kazoo"},
		{"kazoo", "zk", "tier", "tier-kazoo"},
		{"curator", "zk", "tier", "tier-kazoo"},
	} {
		t.Run(strings.Join(kinds, "+"), func(t *testing.T) {
			t.Parallel()
			e := newEnsemble(t)
			e.keepPath(t)
			share(t, e, 3, launch(t, e, sessionTimeout, kinds...))
		})
	}
}
