package interop_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
)

// Curator acquires permits one by one, and queues again for each. If two contenders each want both of two permits, each may get one, and
// then they wait for each other. tierlock cannot resolve such a deadlock. Its contenders that queue behind it wait until they give up.
func TestHalvesOfPermits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		behind  string // kind of the second contender; the first one is a contender of Curator
		givesUp bool   // whether the second contender gives up, so that the first one can go on; otherwise both are stuck
	}{
		{behind: "curator-semaphore-2"},
		{behind: "tier-semaphore-2"},
		{behind: "tier-semaphore-2", givesUp: true},
	} {
		t.Run(fmt.Sprintf("%s/%t", c.behind, c.givesUp), func(t *testing.T) {
			t.Parallel()
			e := newEnsemble(t)
			drivers := launch(t, e, sessionTimeout, "curator-semaphore-2", "curator-semaphore-2", c.behind)
			holder, first, second := drivers[0], drivers[1], drivers[2]
			holder.do(t, "acquire 0 2")
			limits := []int{0, 0}
			if c.givesUp {
				limits[1] = 6000
			}
			for i, d := range drivers[1:] {
				d.order(t, "acquire %d 2", limits[i])
				e.below("locks").awaitChildren(t, i+1)
			}
			holder.release(t)
			if c.givesUp {
				need.That(t, "the one that is to give up has both permits", second.answer(t).TimedOut)
				second = first
			} else {
				time.Sleep(2 * time.Second)
				need.Equal(t, "answers: the documentation says that no contender gets both permits,", len(first.answers)+len(second.answers), 0)
				first.dismiss()
			}
			second.answer(t)
			second.release(t)
			e.below("locks").awaitChildren(t, 0)
			e.below("leases").awaitChildren(t, 0)
		})
	}
}
