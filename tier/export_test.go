package tier

import (
	"context"

	"github.com/tierlock/tierlock/internal/second"
)

// Cohorts returns the number of lock paths that a registry knows of.
func Cohorts(r *Registry) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.cohorts)
}

// Derived returns the number of contexts that a hold knows of.
func Derived(h *Hold) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.derived)
}

// PassOn does to the node of a hold what a waiter does that was chosen and leaves. The hold must not be released.
func PassOn(h *Hold) {
	c := h.own.cohort
	c.mu.Lock()
	defer c.mu.Unlock()
	c.passOnLocked(h.own.grant, found)
}

// Arrive is the first half of an acquisition; the second half queues.
func Arrive(m *Mutex) (queue, try func(context.Context) error) {
	c := m.registry.join(m.lockKey())
	take := func(take func(*cohort, context.Context, *Mutex) (*ownership, error)) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := take(c, ctx, m)
			return err
		}
	}
	return take((*cohort).enter), take((*cohort).try)
}

// Sibling returns another mutex of the same registry.
func Sibling(m *Mutex, path string) *Mutex { return m.registry.Mutex(path) }

// Close closes the registry of a mutex.
func Close(m *Mutex) error { return m.registry.Close() }

// RWSibling returns the reader/writer lock of the same path and registry.
func RWSibling(m *Mutex) *RWMutex { return m.registry.RWMutex(m.path) }

// RegistryOf returns the registry of a lock.
func RegistryOf(m *RWMutex) *Registry { return m.writer.registry }

// Crowded runs a benchmark in a hundred goroutines or more.
var Crowded = crowded

// Pools returns the number of semaphores that a registry knows of.
func Pools(r *Registry) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.pools)
}

// LeaveServed takes permits, calls then, and does what a claimant does whose context ends in that moment.
func LeaveServed(ctx context.Context, s *Semaphore, k int, then func()) error {
	p, err := s.registry.joinPool(s.path, s.permits)
	if err != nil {
		return err
	}
	defer s.registry.partPool(p)
	c := &claimant{semaphore: s, count: k, turn: make(chan struct{})}
	if err := p.enter(ctx, c); err != nil {
		return err
	}
	then()
	p.withdraw(c)
	return nil
}

// StandingWait is what is told of a wait that stands so.
func StandingWait(s second.Standing) (w Wait) {
	w.stand(s, nil)
	return w
}
