package waittest

import (
	"log/slog"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/tier"
)

// A Shared is a server that all tests of a package share, except those that damage it. It comes with a client that is independent of the
// library.
type Shared[S any] struct {
	Start func() (server S, stop func(), err error) // if nothing was started, stop is nil

	once   sync.Once
	server S
	stop   func()
	err    error
}

// Get returns the server. The first call starts it.
func (s *Shared[S]) Get(t testing.TB) S {
	t.Helper()
	s.once.Do(func() { s.server, s.stop, s.err = s.Start() })
	childtest.Check(t, s.err)
	return s.server
}

// Main runs the tests, and stops the server before goroutines are counted.
func (s *Shared[S]) Main(m *testing.M) {
	second.Defaults.Logger = slog.New(slog.DiscardHandler) // tests cause losses and outages on purpose, so they are not logged
	goleak.VerifyTestMain(run(func() int {
		defer func() {
			if s.stop != nil {
				s.stop()
			}
		}()
		return m.Run()
	}))
}

type run func() int

func (r run) Run() int { return r() }

// Hold acquires the test's own lock.
func Hold(t testing.TB, locks *tier.Registry) *tier.Hold {
	t.Helper()
	hold, err := locks.Mutex(Path(t)).Acquire(Soon(t))
	if err != nil {
		t.Fatal(err)
	}
	return hold
}

// Grant returns the grant of a hold.
func Grant(h *tier.Hold) second.Grant {
	g, _ := tier.GuardOf(h)
	return g.Grants[0]
}
