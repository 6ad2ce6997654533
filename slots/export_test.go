package slots

import "time"

// WithClock has a job go by a clock that is ahead of that of the machine.
func WithClock(ahead time.Duration) Option {
	return func(j *Job) { j.now = func() time.Time { return time.Now().Add(ahead) } }
}
