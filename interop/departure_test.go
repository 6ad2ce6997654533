package interop_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/waittest"
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

// Whoever gives up in the middle of the queue, of ours or of kazoo's, leaves the others as they were.
func TestWhoGivesUpBlocksNobody(t *testing.T) {
	t.Parallel()
	e := newEnsemble(t)
	drivers := launch(t, e, sessionTimeout, "curator", "kazoo", "curator", "kazoo", "zk", "tier")
	holder, kazoo, behind := drivers[0], drivers[1], drivers[2:]
	holder.acquire(t)

	ctx, cancel := context.WithCancel(waittest.Soon(t))
	quitter := start(ctx, e.tier(t))
	e.awaitChildren(t, 2)
	kazoo.order(t, "acquire 3000")
	e.awaitChildren(t, 3)
	for i, d := range behind {
		d.order(t, "acquire")
		e.awaitChildren(t, i+4)
	}
	cancel()
	if <-quitter.done; !errors.Is(quitter.err, context.Canceled) {
		t.Fatalf("acquire behind Curator: got %v, want it cancelled", quitter.err)
	}
	if !kazoo.answer(t).TimedOut {
		t.Error("kazoo has the lock together with Curator")
	}
	e.awaitChildren(t, 1+len(behind))
	holder.release(t)
	for _, d := range behind {
		d.answer(t)
		d.release(t)
	}
	e.awaitChildren(t, 0)
}
