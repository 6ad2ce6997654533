package interop_test

import (
	"context"
	"errors"
	"testing"
	"time"
)

// Curator takes permits one by one, and queues anew for each: two that each want all of two permits get one each, and
// wait for the other one without end. Nothing that ours do helps one that is caught so, nor those of ours behind it; among
// ours nobody waits with a part.
func TestHalvesOfPermits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kinds [2]string
		stuck bool
	}{
		{[2]string{"curator-semaphore-2", "curator-semaphore-2"}, true},
		{[2]string{"curator-semaphore-2", "tier-semaphore-2"}, true},
		{[2]string{"tier-semaphore-2", "curator-semaphore-2"}, false}, // ours is served before Curator begins
		{[2]string{"tier-semaphore-2", "tier-semaphore-2"}, false},
	} {
		t.Run(c.kinds[0]+"+"+c.kinds[1], func(t *testing.T) {
			t.Parallel()
			e := newEnsemble(t)
			drivers := launch(t, e, sessionTimeout, "curator-semaphore-2", c.kinds[0], c.kinds[1])
			holder, first, second := drivers[0], drivers[1], drivers[2]
			holder.do(t, "acquire 0 2")
			for i, d := range drivers[1:] {
				d.order(t, "acquire 0 2")
				e.below("locks").awaitChildren(t, i+1)
			}
			holder.release(t)
			if c.stuck {
				time.Sleep(2 * time.Second)
				if len(first.answers)+len(second.answers) > 0 {
					t.Error("somebody has both permits: the documentation says that nobody gets them")
				}
				first.dismiss()
			} else {
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

// Whoever of ours gives up its wait lets a Curator go on that was caught with a part.
func TestOursThatGivesUpFreesCuratorsHalf(t *testing.T) {
	t.Parallel()
	e := newEnsemble(t)
	drivers := launch(t, e, sessionTimeout, "curator-semaphore-2", "curator-semaphore-2")
	holder, half := drivers[0], drivers[1]
	holder.do(t, "acquire 0 2")
	half.order(t, "acquire 0 2")
	e.below("locks").awaitChildren(t, 1)

	ctx, cancel := context.WithCancel(soon(t))
	ended := make(chan error, 1)
	semaphore := e.registry(t).Semaphore(e.path, 2)
	go func() {
		_, err := semaphore.Acquire(ctx, 2)
		ended <- err
	}()
	e.below("locks").awaitChildren(t, 2)
	holder.release(t)
	time.Sleep(300 * time.Millisecond) // for Curator to get its half
	if len(half.answers) > 0 || len(ended) > 0 {
		t.Error("somebody has both permits")
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ours: got %v, want it cancelled", err)
	}
	half.answer(t)
	half.release(t)
	e.below("locks").awaitChildren(t, 0)
	e.below("leases").awaitChildren(t, 0)
}
