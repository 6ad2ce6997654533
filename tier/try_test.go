package tier_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
)

// If the store does not answer a TryAcquire, only its own caller is delayed. After a second, other goroutines queue without waiting for the
// answer.
func TestTryThatIsNotAnsweredKeepsNobodyFromQueueing(t *testing.T) {
	for name, calls := range map[string]func(context.Context, *tier.Registry) (try, acquire func() error){
		"lock": func(ctx context.Context, locks *tier.Registry) (try, acquire func() error) {
			mu := locks.Mutex("/locks/a")
			return func() error { return errOf(mu.TryAcquire(ctx)) }, func() error { return errOf(mu.Acquire(ctx)) }
		},
		"permits": func(ctx context.Context, locks *tier.Registry) (try, acquire func() error) {
			s := locks.Semaphore("/permits", 3)
			return func() error { return errOf(s.TryAcquire(ctx, 1)) }, func() error { return errOf(s.Acquire(ctx, 1)) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Server) {
				locks := process(t, s)
				s.Script(func(_ string, c queue.Command) memory.Fault { return memory.Fault{Never: c.Op == queue.Try} })
				try, acquire := calls(soon(t), locks)
				begun := time.Now()
				alone := begin(func() (bool, error) { return true, try() })
				time.Sleep(sessionTimeout / 18)
				alone.blocked(t)
				waits := begin(func() (bool, error) { return true, acquire() })
				<-alone.done
				wantErr(t, "the try", alone.err, tier.ErrLocked)
				need.WantMention(t, alone.err, "did not answer")
				waits.granted(t)
				need.Equal(t, "both together take", time.Since(begun), time.Second)
				synctest.Wait()
			})
		})
	}
}

// If no other goroutine waits for a TryAcquire, it lasts until the process has noticed that the store does not answer.
func TestTryThatNobodyWaitsForLastsUntilTheSilenceIsKnown(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		mu := process(t, s).Mutex("/locks/a")
		defer s.Freeze()()
		begun := time.Now()
		err := errOf(mu.TryAcquire(t.Context()))
		need.That(t, "no error", err != nil)
		need.That(t, "given up after "+time.Since(begun).String(), time.Since(begun) > time.Second)
	})
}
