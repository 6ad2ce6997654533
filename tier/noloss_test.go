package tier_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/tier"
)

// A watchdog notes whether a channel of losses is ever closed.
func watchdog(t *testing.T, what string, lost <-chan struct{}) {
	t.Helper()
	go func() {
		select {
		case <-lost:
			t.Errorf("%s: a loss is told of what was released without one", what)
		case <-t.Context().Done():
		}
	}()
}

func TestReleaseWithoutLossTellsOfNone(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks, other := process(t, s), process(t, s)
		mu := locks.Mutex("/locks/a")
		hold := acquire(t, mu)
		watchdog(t, "watched", hold.Lost())
		time.Sleep(sessionTimeout) // its end has long been watched
		local, remote := start(soon(t), mu).blocked(t), start(soon(t), other.Mutex("/locks/a")).blocked(t)
		release(t, hold) // by a requeue
		hold = remote.granted(t)
		watchdog(t, "waited for", hold.Lost())
		release(t, hold)
		release(t, local.granted(t))

		rw := locks.RWMutex("/locks/rw")
		writer, err := rw.Writer().Acquire(soon(t))
		if err != nil {
			t.Fatal(err)
		}
		watchdog(t, "shared", writer.Lost())
		reads := writer.Context(t.Context())
		reader, err := rw.Reader().Acquire(reads)
		if err != nil {
			t.Fatal(err)
		}
		release(t, writer)
		time.Sleep(sessionTimeout)
		release(t, reader)

		permits, err := locks.Semaphore("/permits", 3).Acquire(soon(t), 2)
		if err != nil {
			t.Fatal(err)
		}
		watchdog(t, "permits", permits.Lost())
		time.Sleep(sessionTimeout)
		if err := permits.Release(); err != nil {
			t.Error(err)
		}
		time.Sleep(sessionTimeout)
		synctest.Wait()
	})
}

func TestReleaseThatFindsALossTellsOfIt(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks := process(t, s)
		hold := acquire(t, locks.Mutex("/locks/a"))
		permits, err := locks.Semaphore("/permits", 3).Acquire(soon(t), 2)
		if err != nil {
			t.Fatal(err)
		}
		s.Remove("/locks/a", 0)
		s.Remove("permits of /permits", 0)
		for what, it := range map[string]struct {
			release func() error
			lost    <-chan struct{}
		}{"hold": {hold.Release, hold.Lost()}, "permits": {permits.Release, permits.Lost()}} {
			if err := it.release(); !errors.Is(err, tier.ErrLost) {
				t.Errorf("%s: Release of what was deleted: %v, want ErrLost", what, err)
			}
			select {
			case <-it.lost:
			default:
				t.Errorf("%s: Release says that it is lost, and Lost does not", what)
			}
		}
	})
}
