package locktest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/tier"
)

// SessionTimeout is that of the processes that [Join] starts.
const SessionTimeout = 9 * time.Second

// InMemory runs f in virtual time, with a store of queues of its own, and fails if a goroutine is left.
func InMemory(t *testing.T, f func(t *testing.T, s *memory.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, memory.NewServer()) })
}

// Join returns the locks of one more process that is connected to such a store, and what can be done to it.
func Join(t *testing.T, s *memory.Server, label string, opts ...tier.Option) (*tier.Registry, *memory.Process) {
	t.Helper()
	p := s.Dial(label, SessionTimeout, nil)
	synctest.Wait() // until it is connected
	locks := tier.New(p, opts...)
	t.Cleanup(func() { locks.Close() })
	return locks, p
}
