package second

import (
	"fmt"
	"time"
)

// A QuarantineError says that a store grants nothing to anybody until a time, and why: those to whom it may have
// granted something before, and does not know any more, have to lose it first.
type QuarantineError struct {
	Until  time.Time `json:"until"` // by the clock of this machine
	Reason string    `json:"reason"`
}

func (q *QuarantineError) Error() string {
	return "no grants until " + q.Until.Add(time.Second-1).Format(time.TimeOnly) + ": " + q.Reason
}

// Locked is the error of a try: in the quarantine it wraps q and [ErrLocked], without one it is that.
func (q *QuarantineError) Locked() error {
	if q == nil {
		return ErrLocked
	}
	return quarantined{q}
}

type quarantined struct{ *QuarantineError }

func (q quarantined) Unwrap() []error { return []error{q.QuarantineError, ErrLocked} }

// Explain adds the quarantine, if there is one, to the error of a wait that has ended.
func (q *QuarantineError) Explain(cause error) error {
	if q == nil {
		return cause
	}
	return fmt.Errorf("%w: %w", cause, q)
}

// Quarantined marks who of a queue waits for nobody, and does not have the lock, in a quarantine. Has tells of each whether
// it was granted the lock, or permits, before.
func Quarantined(queue []Contender, has func(i int) bool) {
	read := true // all so far
	for i := range queue {
		c := &queue[i]
		first := i == 0 || read && c.Shared || c.Permits > 0
		read = read && c.Shared
		if c.Quarantined = first && !has(i); c.Quarantined {
			c.Permits = 0
		}
	}
}
