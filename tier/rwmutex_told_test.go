package tier_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zktest"
)

// Every reader hears of the loss, and each release says so.
func TestLossIsToldToAllReaders(t *testing.T) { // I7
	rwMetered(t, func(t *testing.T, s *memory.Server, _ *meter, process func(...tier.Option) *tier.RWMutex) {
		mu := process()
		var holds []*tier.Hold
		for range 3 {
			holds = append(holds, acquire(t, mu.Reader()))
		}
		s.Expire("/locks/a", 0)
		for _, hold := range holds {
			<-hold.Lost()
		}
		next := start(soon(t), mu.Reader()).blocked(t) // not one more with a lock that is lost
		for i, hold := range holds {
			if err := hold.Release(); !errors.Is(err, tier.ErrLost) {
				t.Errorf("release of reader %d after the loss: %v, want %v", i, err, tier.ErrLost)
			}
		}
		if losses := tier.RegistryOf(mu).Stats().Losses; losses[tier.LossOfSession] != 3 {
			t.Errorf("losses %v, want 3 of the session", losses)
		}
		release(t, next.granted(t))
	})
}

// Nobody is let in beside a writer that has become a reader while one of its guarded writes may
// still take effect.
func TestReadersDoNotSeeAGuardedWriteCome(t *testing.T) {
	zkRWMetered(t, func(t *testing.T, s *zktest.Server, _ *zkMeter, process func(...tier.Option) *tier.RWMutex) {
		mu := process()
		hold := acquire(t, mu.Writer())
		read, err := mu.Reader().Acquire(hold.Context(soon(t)))
		if err != nil {
			t.Fatal(err)
		}
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op == zktest.OpMulti && !heartbeat(f) || f.Op == zktest.OpMulti && f.Stage == zktest.Request {
				return zktest.Delay(time.Second)
			}
			return zktest.Pass
		})
		ctx, cancel := context.WithTimeout(soon(t), time.Millisecond)
		defer cancel()
		if err := write(ctx, hold); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("guarded write: %v, want %v", err, context.DeadlineExceeded)
		}
		release(t, hold)
		other := start(soon(t), mu.Reader()).blocked(t)
		if s.Exists("/written") {
			t.Fatal("the write came early")
		}
		time.Sleep(3 * time.Second)
		if !s.Exists("/written") {
			t.Fatal("the write has not come")
		}
		release(t, acquire(t, mu.Reader())) // now it can join, and so can the other one
		release(t, other.granted(t))
		release(t, read)
	})
}

// Once an owner was told that somebody has asked for the lock, its release gives it to nobody here.
func TestRevokedLockLeavesTheProcess(t *testing.T) {
	rwMetered(t, func(t *testing.T, s *memory.Server, _ *meter, process func(...tier.Option) *tier.RWMutex) {
		a, b := process(tier.WithHandOff(time.Hour), tier.WithLinger(time.Hour)), process()
		for _, waits := range []bool{true, false} {
			hold := acquire(t, a.Writer())
			revoked := hold.Revoked()
			var here *acquisition
			if waits {
				here = start(soon(t), a.Writer()).blocked(t)
			}
			there := start(soon(t), b.Writer()).blocked(t)
			if err := b.Writer().Revoke(soon(t)); err != nil {
				t.Fatal(err)
			}
			<-revoked
			there.blocked(t)
			release(t, hold)
			release(t, there.granted(t))
			if waits {
				release(t, here.granted(t))
			}
		}
		hold := acquire(t, a.Writer())
		revoked := hold.Revoked()
		if err := b.Writer().Revoke(soon(t)); err != nil {
			t.Fatal(err)
		}
		<-revoked
		release(t, hold)
		if nodes := s.Queue("/locks/a"); len(nodes) > 0 {
			t.Errorf("contenders %v linger, though somebody asked for the lock", nodes)
		}
	})
}

// Contested is about other processes, and about those that wait because of this one.
func TestContestedByWhoWaits(t *testing.T) {
	rwMetered(t, func(t *testing.T, _ *memory.Server, _ *meter, process func(...tier.Option) *tier.RWMutex) {
		a, b := process(), process()
		told := func(hold *tier.Hold) bool {
			contested := hold.Contested()
			synctest.Wait()
			select {
			case <-contested:
				return true
			default:
				return false
			}
		}
		hold := acquire(t, a.Reader())
		beside := acquire(t, b.Reader())
		here := start(soon(t), a.Writer()).blocked(t)
		if told(hold) {
			t.Error("contested by one that reads, and one of the process")
		}
		there := start(soon(t), b.Writer()).blocked(t)
		release(t, beside)
		if !told(hold) {
			t.Error("not contested, while another process waits to write")
		}
		release(t, hold)
		release(t, there.granted(t))
		hold = here.granted(t)
		reader := start(soon(t), b.Reader()).blocked(t)
		if !told(hold) {
			t.Error("a writer is not contested while another process waits to read")
		}
		release(t, hold)
		release(t, reader.granted(t))
	})
}
