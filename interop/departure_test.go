package interop_test

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestOthersGoOnWhenAHolderIsKilled(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"curator", "tier"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			const timeout = 2 * time.Second
			e := newEnsemble(t)
			drivers := launch(t, e, timeout, kind, "curator", "kazoo", "zk", "tier")
			holder, waiting := drivers[0], drivers[1:]
			holder.acquire(t)
			for i, d := range waiting {
				d.order(t, "acquire")
				e.awaitChildren(t, i+2)
			}
			for _, d := range waiting {
				if len(d.answers) > 0 {
					t.Errorf("%s did not wait for %s", d.kind, kind)
				}
			}
			holder.kill()
			killed := time.Now()
			for i, d := range waiting {
				d.answer(t)
				if i == 0 {
					t.Logf("granted %v after the holder was killed, with a session timeout of %v", time.Since(killed), timeout)
				}
				d.release(t)
			}
			e.awaitChildren(t, 0)
		})
	}
}

// Whoever gives up in the middle of the queue leaves the others as they were.

func TestKazooThatTimesOutBlocksNobody(t *testing.T) {
	t.Parallel()
	e := newEnsemble(t)
	kazoo := launch(t, e, sessionTimeout, "kazoo")[0]
	first, second := e.tier(t), e.tier(t)
	holder := acquire(t, first)
	kazoo.order(t, "acquire 3000")
	e.awaitChildren(t, 2)
	behind := start(soon(t), second)
	e.awaitChildren(t, 3)
	if !kazoo.answer(t).TimedOut {
		t.Error("kazoo has the lock together with tier")
	}
	e.awaitChildren(t, 2)
	release(t, holder)
	release(t, behind.granted(t))
	e.awaitChildren(t, 0)
}

func TestTierThatGivesUpBlocksNobody(t *testing.T) {
	t.Parallel()
	e := newEnsemble(t)
	drivers := launch(t, e, sessionTimeout, "curator", "curator", "kazoo", "zk")
	holder, behind := drivers[0], drivers[1:]
	holder.acquire(t)

	ctx, cancel := context.WithCancel(soon(t))
	quitter := start(ctx, e.tier(t))
	e.awaitChildren(t, 2)
	for i, d := range behind {
		d.order(t, "acquire")
		e.awaitChildren(t, i+3)
	}
	cancel()
	if <-quitter.done; !errors.Is(quitter.err, context.Canceled) {
		t.Fatalf("acquire behind Curator: got %v, want it cancelled", quitter.err)
	}
	e.awaitChildren(t, 4)
	holder.release(t)
	for _, d := range behind {
		d.answer(t)
		d.release(t)
	}
	e.awaitChildren(t, 0)
}
