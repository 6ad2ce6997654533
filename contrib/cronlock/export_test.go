package cronlock

import (
	"time"

	"github.com/tierlock/tierlock/contrib/internal/slot"
)

// WithClock gives a job a clock that is late by d.
func WithClock(late time.Duration) Option {
	return option(func(r *slot.Rule) { r.Now = func() time.Time { return time.Now().Add(-late) } })
}
