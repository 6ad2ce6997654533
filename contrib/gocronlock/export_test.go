package gocronlock

import "time"

// WithClock gives a locker a clock that is late by d.
func WithClock(late time.Duration) Option {
	return option(func(s *settings) { s.Now = func() time.Time { return time.Now().Add(-late) } })
}
