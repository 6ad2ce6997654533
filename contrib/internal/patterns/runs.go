package patterns

import (
	"sync"
	"time"

	"github.com/tierlock/tierlock/slots"
)

// A Runs has the slots of package slots that run in this process.
type Runs struct {
	mu   sync.Mutex           // guards the field below
	next map[string]time.Time // the time of the next slot, by the path of the lock
}

// Event adds a slot whose run begins, and removes a slot whose run ends.
func (r *Runs) Event(e slots.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch e.Kind {
	case slots.Started:
		if r.next == nil {
			r.next = make(map[string]time.Time)
		}
		if !e.Next.IsZero() { // otherwise the schedule has no further slot
			r.next[e.Path] = e.Next
		}
	case slots.Ran, slots.Failed, slots.Lost:
		delete(r.next, e.Path)
	}
}

// Overdue returns for each pattern for how long the time of the next slot has passed while a slot still runs. If several slots of a pattern
// run, it returns the longest time. If none is late, it returns zero.
func (r *Runs) Overdue(p Patterns) map[string]time.Duration {
	all := make(map[string]time.Duration)
	for _, pattern := range p.All() {
		all[pattern] = 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for path, next := range r.next {
		pattern := p.Of(path)
		all[pattern] = max(all[pattern], time.Since(next))
	}
	return all
}
