package locktest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/tier"
)

// SessionTimeout is the session timeout of processes that [Join] starts.
const SessionTimeout = 9 * time.Second

// InMemory runs f in virtual time, with a store in memory. The test fails if a goroutine is left at the end.
func InMemory(t *testing.T, f func(t *testing.T, s *memory.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, memory.NewServer()) })
}

// Join returns the locks of another process that is connected to the store s. It also returns the handle with which tests can disturb that
// process.
func Join(t *testing.T, s *memory.Server, label string, opts ...tier.Option) (*tier.Registry, *memory.Process) {
	t.Helper()
	p := s.Dial(label, SessionTimeout, nil)
	synctest.Wait() // wait until the process is connected
	locks := tier.New(p, opts...)
	t.Cleanup(func() { locks.Close() })
	return locks, p
}
