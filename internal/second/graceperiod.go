package second

import "time"

// A GracePeriodError means that a store grants nothing until a certain time, since it may have lost its memory of earlier grants. Those
// grants have to end first. Users get the error as a *tier.GracePeriodError.
type GracePeriodError struct {
	Until  time.Time // by the clock of this machine
	Reason string
}

func (q *GracePeriodError) Error() string {
	return "no grants until " + q.Until.Add(time.Second-1).Format(time.TimeOnly) + ": " + q.Reason
}

// Locked returns the error for a TryAcquire. In a grace period, the error wraps q and [ErrLocked]. If q is nil, it is ErrLocked.
func (q *GracePeriodError) Locked() error {
	if q == nil {
		return ErrLocked
	}
	return inGracePeriod{q}
}

type inGracePeriod struct{ *GracePeriodError }

func (q inGracePeriod) Unwrap() []error { return []error{q.GracePeriodError, ErrLocked} }

// InGracePeriod marks the contenders of a queue that wait only for the end of a grace period. The function has reports whether contender i
// was granted the lock, or its permits, before the grace period.
func InGracePeriod(queue []Contender, has func(i int) bool) {
	read := true // all contenders so far are readers
	for i := range queue {
		c := &queue[i]
		first := i == 0 || read && c.Shared || c.Permits > 0
		read = read && c.Shared
		if c.InGracePeriod = first && !has(i); c.InGracePeriod {
			c.Permits = 0
		}
	}
}
