package slots

import "time"

// WithClock gives a job a clock that is ahead of the machine's clock.
func WithClock(ahead time.Duration) Option {
	return func(j *Job) { j.now = func() time.Time { return time.Now().Add(ahead) } }
}
