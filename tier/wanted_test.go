package tier_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/tier"
)

// An owner that was told that another process waits yields to that, not to a goroutine of its own
// process that would be told at once. Who does not want to know has the budget.
func TestOwnerThatIsToldGivesWayToTheOtherProcess(t *testing.T) {
	for name, listens := range map[string]bool{"told": true, "not told": false} {
		t.Run(name, func(t *testing.T) {
			metered(t, func(t *testing.T, _ *memory.Server, _ *meter, process func(...tier.Option) *tier.Mutex) {
				a, b := process(tier.WithHandOff(time.Hour), tier.WithRounds()), process()
				hold := acquire(t, a)
				if listens && closed(hold.Contested()) {
					t.Error("contested by nobody")
				}
				here := start(soon(t), a).blocked(t)
				there := start(soon(t), b).blocked(t)
				if listens && !closed(hold.Contested()) {
					t.Error("not contested")
				}
				release(t, hold)
				synctest.Wait()
				if there.pending() == listens || here.pending() != listens {
					t.Errorf("waiting after the release: %t here, %t there", here.pending(), there.pending())
				}
				first, second := there, here
				if !listens {
					first, second = here, there
				}
				release(t, first.granted(t))
				release(t, second.granted(t))
			})
		})
	}
}

// As long as nobody else waits, to ask changes nothing.
func TestOwnerThatIsNotContestedHandsOff(t *testing.T) {
	metered(t, func(t *testing.T, _ *memory.Server, m *meter, process func(...tier.Option) *tier.Mutex) {
		mu := process()
		hold := acquire(t, mu)
		hold.Contested()
		next := start(soon(t), mu).blocked(t)
		m.take()
		release(t, hold)
		if ops := m.take(); writes(ops) != 0 {
			t.Errorf("sent for the hand-off: %v, want no write", ops)
		}
		release(t, next.granted(t))
	})
}

// Once a reader was told, nobody joins those inside: they come to an end, and the lock goes.
func TestReadersThatWereToldLetNobodyIn(t *testing.T) {
	for name, listen := range map[string]func(*tier.Hold) <-chan struct{}{
		"contested": (*tier.Hold).Contested, "revoked": (*tier.Hold).Revoked, "not told": nil,
	} {
		t.Run(name, func(t *testing.T) {
			rwMetered(t, func(t *testing.T, _ *memory.Server, _ *meter, process func(...tier.Option) *tier.RWMutex) {
				a, b := process(tier.WithHandOff(time.Hour)), process()
				first, second := acquire(t, a.Reader()), acquire(t, a.Reader())
				var told <-chan struct{}
				if listen != nil {
					told = listen(first)
				}
				there := start(soon(t), b.Writer()).blocked(t)
				if err := b.Writer().Revoke(soon(t)); err != nil {
					t.Fatal(err)
				}
				if listen != nil && !closed(told) {
					t.Fatal("was not told")
				}
				if listen == nil {
					release(t, acquire(t, a.Reader()))
					release(t, first)
					release(t, second)
					release(t, there.granted(t))
					return
				}
				if _, err := a.Reader().TryAcquire(soon(t)); !errors.Is(err, tier.ErrLocked) {
					t.Errorf("try to read: %v, want %v", err, tier.ErrLocked)
				}
				here := start(soon(t), a.Reader()).blocked(t)
				release(t, first)
				here.blocked(t)
				again, err := a.Reader().Acquire(second.Context(soon(t))) // who is inside may enter again
				if err != nil {
					t.Fatal(err)
				}
				release(t, again)
				release(t, second)
				release(t, there.granted(t))
				release(t, here.granted(t))
			})
		})
	}
}

// A writer that was asked for the lock and goes on as a reader lets nobody of its process in.
func TestWriterThatWasAskedBecomesTheOnlyReader(t *testing.T) {
	rwMetered(t, func(t *testing.T, _ *memory.Server, _ *meter, process func(...tier.Option) *tier.RWMutex) {
		a, b := process(tier.WithHandOff(time.Hour)), process()
		write := acquire(t, a.Writer())
		revoked := write.Revoked()
		here := start(soon(t), a.Reader()).blocked(t)
		there := start(soon(t), b.Writer()).blocked(t)
		if err := b.Writer().Revoke(soon(t)); err != nil {
			t.Fatal(err)
		}
		<-revoked
		read := start(write.Context(soon(t)), a.Reader()).granted(t)
		release(t, write)
		here.blocked(t)
		release(t, read)
		release(t, there.granted(t))
		release(t, here.granted(t))
	})
}

// Whoever asks for a lock that lingers gets it at once, and the request is answered with that.
func TestRequestEndsTheLingering(t *testing.T) {
	metered(t, func(t *testing.T, s *memory.Server, _ *meter, process func(...tier.Option) *tier.Mutex) {
		a, b := process(tier.WithLinger(time.Hour)), process()
		for _, resumed := range []bool{false, true} {
			release(t, acquire(t, a))
			synctest.Wait()
			var inUse *tier.Hold
			if resumed {
				inUse = acquire(t, a) // by one who does not want to know
			}
			if _, err := b.TryAcquire(soon(t)); !errors.Is(err, tier.ErrLocked) {
				t.Fatalf("try of a lock that lingers: %v, want %v", err, tier.ErrLocked)
			}
			if err := b.Revoke(soon(t)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if resumed {
				release(t, inUse)
			}
			if nodes := s.Queue("/locks/a"); len(nodes) > 0 {
				t.Fatalf("resumed %t: contenders %v linger, though somebody has asked for the lock", resumed, nodes)
			}
			hold, err := b.TryAcquire(soon(t))
			if err != nil {
				t.Fatal(err)
			}
			release(t, hold)
			release(t, acquire(t, a))
			if nodes := s.Queue("/locks/a"); len(nodes) != 1 {
				t.Errorf("contenders %v after the next release, want one that lingers", nodes)
			}
			next := acquire(t, a)
			if closed(next.Revoked()) {
				t.Error("the next hold is asked for, though nobody has asked since")
			}
			release(t, next)
			if err := b.Revoke(soon(t)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
	})
}
