package interop_test

import (
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
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
				need.That(t, d.kind+" did not wait for "+kind, len(d.answers) == 0)
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
