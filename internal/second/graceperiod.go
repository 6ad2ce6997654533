package second

import "time"

// A GracePeriodError means that a store grants nothing until a certain time, and why: it may have made grants that it does not know any
// more, and these have to end first. Users get it as a *tier.GracePeriodError.
type GracePeriodError struct {
	Until  time.Time // by the clock of this machine
	Reason string
}

func (q *GracePeriodError) Error() string {
	return "no grants until " + q.Until.Add(time.Second-1).Format(time.TimeOnly) + ": " + q.Reason
}

// Locked returns the error of a try: in a grace period one that wraps q and [ErrLocked], otherwise ErrLocked.
func (q *GracePeriodError) Locked() error {
	if q == nil {
		return ErrLocked
	}
	return inGracePeriod{q}
}

type inGracePeriod struct{ *GracePeriodError }

func (q inGracePeriod) Unwrap() []error { return []error{q.GracePeriodError, ErrLocked} }

// InGracePeriod marks the contenders of a queue that wait only for the end of a grace period. Has reports for each contender whether it
// was granted the lock, or permits, before.
func InGracePeriod(queue []Contender, has func(i int) bool) {
	read := true // all so far
	for i := range queue {
		c := &queue[i]
		first := i == 0 || read && c.Shared || c.Permits > 0
		read = read && c.Shared
		if c.InGracePeriod = first && !has(i); c.InGracePeriod {
			c.Permits = 0
		}
	}
}
