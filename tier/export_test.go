package tier

import (
	"context"

	"github.com/tierlock/tierlock/internal/second"
)

// Stakes returns how many locks and semaphores the registry r keeps state for.
func Stakes(r *Registry) int { return len(r.all()) }

// Known returns for how many paths the registry of m remembers whether lingering pays off.
func Known(m *Mutex) int {
	m.registry.mu.RLock()
	defer m.registry.mu.RUnlock()
	return len(m.registry.credits.known)
}

// Derived returns how many contexts the hold h keeps.
func Derived(h *Hold) int {
	h.work.mu.Lock()
	defer h.work.mu.Unlock()
	return len(h.work.derived)
}

// MutexOf returns the mutex with which a hold was acquired.
func MutexOf(h *Hold) *Mutex { return h.own.mutex }

// Offer acts as a chosen waiter that gives up: it offers the contender of the hold h to the next waiter. The hold must not have been
// released.
func Offer(h *Hold) {
	c := h.own.cohort
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offerLocked(h.own.grant, found)
}

// Arrive does the first half of an acquisition. The function that it returns queues, which is the second half.
func Arrive(m *Mutex) (queue func(context.Context) error) {
	c := m.registry.join(m.at, nil).(*cohort)
	return func(ctx context.Context) error {
		_, _, err := c.enter(ctx, m)
		return err
	}
}

// Sibling returns a mutex at another path, of the same registry.
func Sibling(m *Mutex, path string) *Mutex { return m.registry.Mutex(path) }

// RWSibling returns the reader/writer lock with the same path and the same registry.
func RWSibling(m *Mutex) *RWMutex { return m.registry.RWMutex(m.Path()) }

// RegistryOf returns the registry of a lock.
func RegistryOf(m *RWMutex) *Registry { return m.writer.registry }

// LeaveServed acquires permits and calls then. After that it acts as a waiter whose context ends at the moment in which it gets its
// permits.
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

// StandingWait returns the Wait that a waiter with this standing would report.
func StandingWait(s second.Standing) (w Wait) {
	w.stand(s, nil)
	return w
}

// Expire acts as the timer for kept permits that fires. A timer that is stopped too late may still fire.
func Expire(s *Semaphore) {
	p := s.registry.join(s.at, s).(*pool)
	defer p.part()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expireLocked()
}
