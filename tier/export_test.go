package tier

import (
	"context"

	"github.com/tierlock/tierlock/internal/second"
)

// Stakes returns the number of locks and semaphores of which a registry keeps state.
func Stakes(r *Registry) int { return len(r.all()) }

// Known returns the number of paths for which the registry of m knows whether lingering pays.
func Known(m *Mutex) int {
	m.registry.mu.RLock()
	defer m.registry.mu.RUnlock()
	return len(m.registry.credits.known)
}

// Derived returns the number of contexts that a hold keeps.
func Derived(h *Hold) int {
	h.work.mu.Lock()
	defer h.work.mu.Unlock()
	return len(h.work.derived)
}

// MutexOf returns the mutex with which a hold was acquired.
func MutexOf(h *Hold) *Mutex { return h.own.mutex }

// Offer does with the contender of a hold what a waiter does that was chosen and then leaves. The hold must not be released.
func Offer(h *Hold) {
	c := h.own.cohort
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offerLocked(h.own.grant, found)
}

// Arrive makes the first half of an acquisition; the returned function queues.
func Arrive(m *Mutex) (queue func(context.Context) error) {
	c := m.registry.join(m.at, nil).(*cohort)
	return func(ctx context.Context) error {
		_, _, err := c.enter(ctx, m)
		return err
	}
}

// Sibling returns another mutex of the same registry.
func Sibling(m *Mutex, path string) *Mutex { return m.registry.Mutex(path) }

// RWSibling returns the reader/writer lock of the same path and registry.
func RWSibling(m *Mutex) *RWMutex { return m.registry.RWMutex(m.Path()) }

// RegistryOf returns the registry of a lock.
func RegistryOf(m *RWMutex) *Registry { return m.writer.registry }

// LeaveServed takes permits, calls then, and does what a waiter does whose context ends at that moment.
func LeaveServed(ctx context.Context, s *Semaphore, k int, then func()) error {
	p := s.registry.join(s.at, s).(*pool)
	defer p.part()
	p.mu.Lock()
	w := p.gate.join()
	w.seat.semaphore, w.seat.count = s, k
	p.requestLocked()
	p.mu.Unlock()
	if err := await(ctx, p, w, 0, s.registry.now()); err != nil {
		return err
	}
	then()
	p.withdraw(w)
	return nil
}

// StandingWait returns the Wait that reports this standing.
func StandingWait(s second.Standing) (w Wait) {
	w.stand(s, nil)
	return w
}

// Expire acts as a timer for kept permits that was stopped too late.
func Expire(s *Semaphore) {
	p := s.registry.join(s.at, s).(*pool)
	defer p.part()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expireLocked()
}
