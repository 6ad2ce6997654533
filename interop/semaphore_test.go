package interop_test

import (
	"fmt"
	"testing"
	"time"
)

// Curator takes permits one by one, and queues anew for each: two that each want all of two permits get one each, and
// wait for the other one without end. Nothing that ours do helps one that is caught so, nor those of ours behind it, unless
// ours give up; among ours nobody waits with a part.
func TestHalvesOfPermits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kinds   [2]string
		stuck   bool // both
		givesUp bool // the second one, which lets the first go on
	}{
		{kinds: [2]string{"curator-semaphore-2", "curator-semaphore-2"}, stuck: true},
		{kinds: [2]string{"curator-semaphore-2", "tier-semaphore-2"}, stuck: true},
		{kinds: [2]string{"curator-semaphore-2", "tier-semaphore-2"}, givesUp: true},
		{kinds: [2]string{"tier-semaphore-2", "curator-semaphore-2"}}, // ours is served before Curator begins
		{kinds: [2]string{"tier-semaphore-2", "tier-semaphore-2"}},
	} {
		t.Run(fmt.Sprintf("%s+%s/%t", c.kinds[0], c.kinds[1], c.givesUp), func(t *testing.T) {
			t.Parallel()
			e := newEnsemble(t)
			drivers := launch(t, e, sessionTimeout, "curator-semaphore-2", c.kinds[0], c.kinds[1])
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
			switch {
			case c.givesUp:
				if !second.answer(t).TimedOut {
					t.Error("the one that is to give up has both permits")
				}
				second = first
			case c.stuck:
				time.Sleep(2 * time.Second)
				if len(first.answers)+len(second.answers) > 0 {
					t.Error("somebody has both permits: the documentation says that nobody gets them")
				}
				first.dismiss()
			default:
				first.answer(t)
				first.release(t)
			}
			second.answer(t)
			second.release(t)
			e.below("locks").awaitChildren(t, 0)
			e.below("leases").awaitChildren(t, 0)
		})
	}
}
