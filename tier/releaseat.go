package tier

import (
	"context"
	"time"
)

// ReleaseAt is Release at t, in the background: the lock has been held for a minimum time, and
// nobody has to wait for that. Until then the hold goes on, with its contexts; Release ends it
// earlier. What Release would return at t is dropped.
//
// If t has passed it is Release itself, with its errors. Otherwise it returns nil.
func (h *Hold) ReleaseAt(t time.Time) error {
	c := h.own.cohort
	if time.Until(t) > 0 && c.registry.spawn(c, func() { h.releaseAt(t) }) {
		return nil
	}
	return h.Release() // also if the registry is closed
}

func (h *Hold) releaseAt(t time.Time) {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-h.Context(context.Background()).Done(): // lost, or released meanwhile
	}
	h.Release() // also gives a lost contender up
}
