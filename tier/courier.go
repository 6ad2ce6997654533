package tier

import (
	"context"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// fetchLocked sends the courier for a new grant, in the name of the first waiter; or of the first
// that is to write, as such a grant serves those who read as well.
func (c *cohort) fetchLocked() {
	errand := c.gate.errand()
	c.sendCourierLocked(errand, errand.claim.Acquire)
}

// requeueLocked sends the courier to give grant up and queue for the first waiter, in one
// transaction.
func (c *cohort) requeueLocked(grant second.Grant) bool {
	errand := c.gate.errand()
	return c.sendCourierLocked(errand, func(ctx context.Context, w *second.Wait) (second.Grant, error) {
		return errand.claim.Requeue(ctx, grant, w)
	})
}

// sendCourierLocked starts the one goroutine that goes to the second tier for the waiters,
// with acquire. It is called back only when the last of them has left, so a waiter that
// gives up does not cost the process its place in the queue. When the registry is
// closed, it turns the waiters away and reports false.
func (c *cohort) sendCourierLocked(errand *Mutex, acquire func(context.Context, *second.Wait) (second.Grant, error)) bool {
	c.state = fetching
	c.under = new(second.Wait)
	c.forgetLocked()
	// Not derived from any waiter's context: it serves whoever is first when it returns.
	ctx, quit := context.WithCancel(context.Background())
	c.quit = quit
	wait := c.under
	sent := c.registry.spawn(c, func() {
		defer quit()
		grant, err := acquire(ctx, wait)
		c.deliver(ctx, errand, grant, err)
	})
	if !sent {
		quit()
		c.state = idle
		c.refuseAllLocked(c.failure("acquire", ErrClosed))
	}
	return sent
}

// deliver gives what the courier brings to the waiters. An error that retrying cannot fix
// is for all who want a grant like the one that could not be had.
func (c *cohort) deliver(ctx context.Context, errand *Mutex, grant second.Grant, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.quit = nil
	if err == nil {
		c.round = c.gate.arrivals
		source := found
		if c.under.Behind() {
			source = handOver
		}
		c.under = nil
		c.passOnLocked(grant, source)
		return
	}
	c.under = nil
	if ctx.Err() == nil { // else it was called back, and somebody may have come since
		c.refuseLocked(errand, err)
	}
	c.freeLocked()
}

func (c *cohort) refuseLocked(errand *Mutex, err error) {
	for w := c.gate.first; w != nil; {
		next := w.next
		if w.errand.claim.Equal(errand.claim) {
			c.gate.turnAway(w, err)
			c.tally.waited += c.registry.now()
		}
		w = next
	}
}

// refuseAllLocked turns all waiters away.
func (c *cohort) refuseAllLocked(err error) {
	c.tally.waited += time.Duration(c.gate.waiting) * c.registry.now()
	c.gate.refuse(err)
}
