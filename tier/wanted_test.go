package tier_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
)

// An owner that uses one of these channels learns from it that another process waits for the lock, or has asked for it. Then its release
// does not hand the lock off within the process, and the lock does not linger. An owner that uses no channel keeps the lock for the budget.
func TestOwnerThatIsToldGivesWayToTheOtherProcess(t *testing.T) {
	for name, listen := range map[string]func(*tier.Hold) <-chan struct{}{
		"contended": (*tier.Hold).Contended, "revoked": (*tier.Hold).RevokeRequested, "no channel": nil,
	} {
		t.Run(name, func(t *testing.T) {
			metered(t, func(t *testing.T, s *memory.Server, _ *meter, process func(...tier.Option) *tier.Mutex) {
				a, b := process(tier.WithHandOff(time.Hour), tier.WithRounds(), tier.WithLinger(time.Hour)), process()
				hold := acquire(t, a)
				need.That(t, "the channel is closed, although no process waits", listen == nil || !closed(listen(hold)))
				next := start(soon(t), a).blocked(t)
				release(t, hold)
				need.That(t, "not handed off, although no other process wants the lock", next.granted(t).Token() == hold.Token())
				hold = next.got
				here := start(soon(t), a).blocked(t)
				there := start(soon(t), b).blocked(t)
				if name == "revoked" {
					revoke(t, b)
				}
				need.That(t, "the channel is open, although a process waits", listen == nil || closed(listen(hold)))
				release(t, hold)
				synctest.Wait()
				need.Equal(t, "whether it waits there", there.pending(), listen == nil)
				need.Equal(t, "whether it waits here", here.pending(), listen != nil)
				first, second := there, here
				if listen == nil {
					first, second = here, there
				}
				release(t, first.granted(t))
				release(t, second.granted(t))
				if name == "revoked" { // no other process waits in this case
					hold = acquire(t, a)
					revoked := hold.RevokeRequested()
					revoke(t, b)
					<-revoked
					release(t, hold)
					need.Empty(t, "contenders that linger, although a process has asked for the lock", s.Queue("/locks/a"))
				}
			})
		})
	}
}

// revoke asks the holder to release the lock.
func revoke(t *testing.T, mu *tier.Mutex) {
	t.Helper()
	wantErr(t, "Revoke", mu.Revoke(soon(t)), nil)
	synctest.Wait()
}

// If a reader knows that another process wants the lock, no further reader of its own process joins. When the present readers have left,
// the other process gets the lock.
func TestReadersThatWereToldLetNobodyIn(t *testing.T) {
	need.Each(t, map[string]func(*tier.Hold) <-chan struct{}{
		"contended": (*tier.Hold).Contended, "revoked": (*tier.Hold).RevokeRequested, "no channel": nil,
	}, func(t *testing.T, listen func(*tier.Hold) <-chan struct{}) {
		rwMetered(t, func(t *testing.T, _ *memory.Server, _ *meter, process func(...tier.Option) *tier.RWMutex) {
			a, b := process(tier.WithHandOff(time.Hour)), process()
			first, second := acquire(t, a.Reader()), acquire(t, a.Reader())
			var told <-chan struct{}
			if listen != nil {
				told = listen(first)
			}
			there := start(soon(t), b.Writer()).blocked(t)
			revoke(t, b.Writer())
			need.That(t, "the channel of the reader is open", listen == nil || closed(told))
			if listen == nil {
				release(t, acquire(t, a.Reader()))
				release(t, first)
				release(t, second)
				release(t, there.granted(t))
				return
			}
			wantErr(t, "try to read", errOf(a.Reader().TryAcquire(soon(t))), tier.ErrLocked)
			here := start(soon(t), a.Reader()).blocked(t)
			release(t, first)
			here.blocked(t)
			release(t, start(second.Context(soon(t)), a.Reader()).granted(t)) // a reader that already holds the lock may enter it again
			release(t, second)
			release(t, there.granted(t))
			release(t, here.granted(t))
		})
	})
}

// If a process asks for a lock that lingers, the lock is free at once. The request does not affect later holds.
func TestRequestEndsTheLingering(t *testing.T) {
	metered(t, func(t *testing.T, s *memory.Server, _ *meter, process func(...tier.Option) *tier.Mutex) {
		a, b := process(tier.WithLinger(time.Hour)), process()
		for _, resumed := range []bool{false, true} {
			for range 4 { // after four useful cases, one wasted case does not end the lingering
				release(t, acquire(t, a))
			}
			synctest.Wait()
			var inUse *tier.Hold
			if resumed {
				inUse = acquire(t, a) // the owner of this hold does not listen for requests
			}
			wantErr(t, "try of a lock that lingers", errOf(b.TryAcquire(soon(t))), tier.ErrLocked)
			revoke(t, b)
			if resumed {
				release(t, inUse)
			}
			need.Empty(t, fmt.Sprintf("contenders that linger although a process has asked for the lock; resumed: %t", resumed), s.Queue("/locks/a"))
			hold := need.Get(b.TryAcquire(soon(t)))(t)
			release(t, hold)
			release(t, acquire(t, a))
			wantQueue(t, s, "after the next release", 1)
			next := acquire(t, a)
			need.That(t, "the next hold is asked for, although no process has asked since", !closed(next.RevokeRequested()))
			release(t, next)
			revoke(t, b)
		}
	})
}
