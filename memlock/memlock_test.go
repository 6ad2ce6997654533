package memlock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/memlock"
	"github.com/tierlock/tierlock/tier"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	path = "/jobs/report"
	ttl  = 12 * time.Second
)

// play runs a test with two processes, in virtual time.
func play(t *testing.T, test func(t *testing.T, server *memlock.Server, a, b *tier.Registry)) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		connect := func(label string) *tier.Registry {
			locks := need.Get(server.Connect(tier.WithLeaseTTL(ttl), tier.WithLabel(label)))(t)
			t.Cleanup(func() { locks.Close() })
			return locks
		}
		test(t, server, connect("a"), connect("b"))
	})
}

// acquire starts an acquisition. The returned function waits for its end. It returns how long the acquisition took, and its error.
func acquire(t *testing.T, locks *tier.Registry) (after func() (time.Duration, error)) {
	begun, ended := time.Now(), make(chan error, 1)
	var took time.Duration
	go func() {
		_, err := locks.Mutex(path).Acquire(t.Context())
		took = time.Since(begun)
		ended <- err
	}()
	return func() (time.Duration, error) {
		err := <-ended
		return took, err
	}
}

// If the server does not answer, Release waits no longer than the release timeout.
func TestReleaseTimeoutBoundsARelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlock.NewServer()
		locks := need.Get(server.Connect(tier.WithLeaseTTL(ttl), tier.WithReleaseTimeout(time.Second/2)))(t)
		defer locks.Close()
		hold := need.Get(locks.Mutex(path).Acquire(t.Context()))(t)
		resume := server.Pause()
		begun := time.Now()
		hold.Release()
		need.Equal(t, "Release took", time.Since(begun), time.Second/2)
		resume()
	})
}

func TestTwoRegistriesAreTwoProcesses(t *testing.T) {
	play(t, func(t *testing.T, _ *memlock.Server, a, b *tier.Registry) {
		hold := need.Get(a.Mutex(path).Acquire(t.Context()))(t)
		_, err := b.Mutex(path).TryAcquire(t.Context())
		need.WantErr(t, "a try beside it", err, tier.ErrLocked)
		queue := need.Get(b.Mutex(path).Contenders(t.Context()))(t)
		need.That(t, "the queue has the holder and its label", len(queue) == 1 && queue[0].Label == "a" && queue[0].Token == hold.Token())
		need.OK(t, hold.Release())
		next := need.Get(b.Mutex(path).Acquire(t.Context()))(t)
		need.That(t, "tokens grow", next.Token() > hold.Token())
		need.OK(t, next.Release())
	})
}

func TestAProcessThatIsCutOffLosesItsLockBeforeAnotherOneHasIt(t *testing.T) {
	play(t, func(t *testing.T, server *memlock.Server, a, b *tier.Registry) {
		hold := need.Get(a.Mutex(path).Acquire(t.Context()))(t)
		time.Sleep(time.Minute) // renewals are sent in this time
		begun := time.Now()
		heal := server.CutOff(a)
		got := acquire(t, b)
		<-hold.Lost()
		lost := time.Since(begun)
		need.WantErr(t, "the hold", hold.Err(), tier.ErrLost)
		took, err := got()
		need.OK(t, err)
		need.That(t, "it knew before the other one had it", lost < took)
		need.AtMost(t, "the server keeps it for", took, ttl)
		heal()
		need.WantErr(t, "the release", hold.Release(), tier.ErrLost)
	})
}

func TestASessionThatEndsTakesTheLockWithIt(t *testing.T) {
	play(t, func(t *testing.T, server *memlock.Server, a, b *tier.Registry) {
		hold := need.Get(a.Mutex(path).Acquire(t.Context()))(t)
		got := acquire(t, b)
		synctest.Wait()
		server.Expire(a)
		took, err := got()
		need.OK(t, err)
		need.Equal(t, "the other one waits for", took, 0)
		synctest.Wait()
		need.WantErr(t, "the hold", hold.Err(), tier.ErrLost)
		need.WantErr(t, "the release", hold.Release(), tier.ErrLost)
	})
}

func TestDelayedRequestsTakeThatLong(t *testing.T) {
	play(t, func(t *testing.T, server *memlock.Server, a, _ *tier.Registry) {
		synctest.Wait()
		server.Delay(a, time.Second)
		took, err := acquire(t, a)()
		need.OK(t, err)
		need.Equal(t, "an acquisition takes", took, time.Second)
		server.Delay(a, 0)
	})
}

func TestAnAnswerThatIsLostCostsTimeAndNothingElse(t *testing.T) {
	play(t, func(t *testing.T, server *memlock.Server, a, b *tier.Registry) {
		synctest.Wait()
		server.LoseAnswers(a, 1)
		took, err := acquire(t, a)()
		need.OK(t, err)
		need.Between(t, "the acquisition takes", took, time.Millisecond, ttl/3)
		queue := need.Get(b.Mutex(path).Contenders(t.Context()))(t)
		need.Equal(t, "contenders", len(queue), 1)
	})
}

func TestAServerThatStandsStillCostsTheLock(t *testing.T) {
	play(t, func(t *testing.T, server *memlock.Server, a, _ *tier.Registry) {
		hold := need.Get(a.Mutex(path).Acquire(t.Context()))(t)
		resume := server.Pause()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := a.Mutex("/other").Acquire(ctx)
		need.WantErr(t, "an acquisition", err, context.DeadlineExceeded)
		<-hold.Lost()
		resume()
		resume()
		need.WantErr(t, "the release", hold.Release(), tier.ErrLost)
		took, err := acquire(t, a)()
		need.OK(t, err)
		need.AtMost(t, "after that an acquisition takes", took, ttl)
	})
}

func TestAClosedRegistryIsForgotten(t *testing.T) {
	play(t, func(t *testing.T, server *memlock.Server, a, b *tier.Registry) {
		hold := need.Get(a.Mutex(path).Acquire(t.Context()))(t)
		a.Close()
		need.WantErr(t, "the hold", hold.Err(), tier.ErrLost)
		_, err := acquire(t, b)()
		need.OK(t, err)
		server.Expire(a) // after this, the registry has no process
		server.Delay(a, time.Hour)
		server.LoseAnswers(a, 1)
		server.CutOff(a)()
		need.Equal(t, "processes that the server knows", memlock.Processes(server), 1)
	})
}

func TestWrongOptionsAreErrors(t *testing.T) {
	for text, opts := range map[string][]tier.RegistryOption{
		"lease TTL 1ms": {tier.WithLeaseTTL(time.Millisecond)},
		"hand-off":      {tier.WithHandOff(0)},
		"nil logger":    {tier.WithLogger(nil)},
	} {
		_, err := memlock.NewServer().Connect(opts...)
		need.WantMention(t, err, text)
		need.That(t, "it is one of the package", errors.Unwrap(err) != nil)
	}
}
