package tier_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
)

// The registry keeps the state of a lock exactly as long as a goroutine holds the lock or waits for it.
func TestEntryLivesWhileHeldOrWaitedFor(t *testing.T) { // I10
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks, other := process(t, s), process(t, s)
		mu := locks.Mutex("/locks/a")
		entries := func(want int, when string) {
			t.Helper()
			synctest.Wait()
			need.Equal(t, "entries "+when, tier.Stakes(locks), want)
		}
		entries(0, "for a mutex nobody uses")
		elsewhere := acquire(t, other.Mutex("/locks/a"))
		ctx, cancel := context.WithCancelCause(t.Context())
		waiter := start(ctx, mu).blocked(t)
		entries(1, "while one waits")
		cancel(errChangedMind)
		waiter.cancelled(t)
		entries(0, "after it gave up")
		need.That(t, "TryAcquire of a taken lock succeeded", errOf(mu.TryAcquire(soon(t))) != nil)
		entries(0, "after TryAcquire failed")
		release(t, elsewhere)
		hold := acquire(t, mu)
		entries(1, "while held")
		release(t, start(hold.Context(t.Context()), mu).granted(t))
		entries(1, "after release of a nested hold")
		s.Expire("/locks/a", 0)
		<-hold.Lost()
		entries(1, "while a lost hold is not released")
		_ = hold.Release() // returns ErrLost
		entries(0, "after its release")
	})
}

func TestCloseFromAnObserverReturns(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		for _, from := range []string{"Lost", "Connection", "Shutdown"} {
			var locks *tier.Registry
			begin, shutDown := make(chan struct{}), make(chan struct{})
			closes := func() {
				<-begin
				wantErr(t, "Close from "+from, locks.Close(), nil)
				wantErr(t, "Err right after it", locks.Err(), tier.ErrClosed)
			}
			observer := map[string]tier.Observer{
				"Lost":       {Lost: func(context.Context, tier.LostEvent) { closes() }},
				"Connection": {Connection: func(tier.ConnectionEvent) { closes() }},
				"Shutdown": {Lost: func(_ context.Context, l tier.LostEvent) {
					if l.Hold == nil {
						return // returns because the test may call Shutdown only once
					}
					<-begin
					defer close(shutDown)
					ctx, cancel := context.WithTimeout(context.Background(), time.Second)
					defer cancel()
					wantErr(t, "Shutdown of a lock that is held", locks.Shutdown(ctx), context.DeadlineExceeded)
				}},
			}[from]
			locks = observed(t, s, observer)
			hold := acquire(t, locks.Mutex("/locks/a"))
			permits := take(t, locks.Semaphore("/permits", 3), 1)
			s.Remove("/locks/a", 0)
			s.Remove("permits of /permits", 0)
			close(begin)
			if from == "Shutdown" {
				<-shutDown
			}
			hold.Release()
			permits.Release()
			<-locks.Done()
			wantErr(t, "Close elsewhere, which waits for all", locks.Close(), nil)
		}
	})
}

// A background task of the registry calls the observer here. Close waits for such tasks, but must not wait for the task that calls it.
func TestCloseFromAnObserverOfAReleaseInTheBackgroundReturns(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		var locks *tier.Registry
		locks = observed(t, s, tier.Observer{Released: func(context.Context, tier.ReleasedEvent) { wantErr(t, "Close", locks.Close(), nil) }})
		wantErr(t, "ReleaseAt", acquire(t, locks.Mutex("/locks/a")).ReleaseAt(time.Now().Add(time.Second)), nil)
		<-locks.Done()
		wantErr(t, "Close elsewhere, which waits for all", locks.Close(), nil)
	})
}

// A closing tier is a store that calls the function before when it is about to be closed.
type closing struct {
	second.Tier
	before func()
}

func (c closing) Close() error {
	c.before()
	return c.Tier.Close()
}

// Close sends only the command that closes the session. The waiters then give up, and send no commands to leave the queue.
func TestCloseSendsNothingForWhoeverWaits(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		m := &meter{}
		s.Script(m.note)
		acquire(t, process(t, s).Mutex("/locks/a"))
		locks := tier.New(closing{s.Dial("", sessionTimeout, nil), func() {
			synctest.Wait()
			need.Empty(t, "commands before the second tier is closed", m.take())
		}})
		waiter := start(soon(t), locks.Mutex("/locks/a")).blocked(t)
		m.take()
		locks.Close()
		<-waiter.done
		wantErr(t, "a waiter", waiter.err, tier.ErrClosed)
	})
}

func TestTryAfterCloseSaysSoWhileALostHoldIsLeft(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks := process(t, s)
		mu, sem := locks.Mutex("/locks/a"), locks.Semaphore("/permits", 1)
		hold := acquire(t, mu)
		permits := take(t, sem, 1)
		wantErr(t, "TryAcquire before Close", errOf(mu.TryAcquire(soon(t))), tier.ErrLocked)
		locks.Close()
		for _, err := range []error{errOf(mu.TryAcquire(soon(t))), errOf(sem.TryAcquire(soon(t), 1))} {
			wantErr(t, "TryAcquire", err, tier.ErrClosed)
			need.That(t, fmt.Sprintf("said to be locked: %v", err), !errors.Is(err, tier.ErrLocked))
		}
		hold.Release()
		permits.Release()
	})
}

// The function shutdown starts to shut down a registry in a new goroutine.
func shutdown(ctx context.Context, locks *tier.Registry) *call[bool] {
	c := begin(func() (bool, error) { return true, locks.Shutdown(ctx) })
	synctest.Wait()
	return c
}

func TestShutdownLetsOwnersFinishAndNobodyElseIn(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks, others := process(t, s), process(t, s)
		mu := locks.Mutex("/locks/a", tier.WithHandOff(time.Hour))
		hold, taken := acquire(t, mu), acquire(t, others.Mutex("/locks/b"))
		defer release(t, taken)
		waiters := append(startAll(soon(t), t, 3, locks.Mutex("/locks/b")), start(soon(t), mu).blocked(t))
		done := shutdown(soon(t), locks)
		for _, w := range waiters {
			<-w.done
			wantErr(t, "a waiter", w.err, tier.ErrClosed)
			need.WantMention(t, w.err, " the lock")
		}
		wantErr(t, "Err", locks.Err(), tier.ErrClosed)
		for _, path := range []string{"/locks/a", "/locks/new"} {
			wantErr(t, "Acquire "+path, errOf(locks.Mutex(path).Acquire(t.Context())), tier.ErrClosed)
			wantErr(t, "TryAcquire "+path, errOf(locks.Mutex(path).TryAcquire(t.Context())), tier.ErrClosed)
		}
		again := start(hold.Context(t.Context()), mu).granted(t)
		time.Sleep(time.Minute)
		wantErr(t, "the hold", hold.Err(), nil)
		release(t, hold)
		done.blocked(t)
		release(t, again)
		done.granted(t)
		<-locks.Done()
		wantErr(t, "Close", locks.Close(), nil)
	})
}

// Each goroutine gets the lock while the registry shuts down. It learns of the shutdown before its Acquire returns, and the Acquire fails.
func TestShutdownTurnsAwayWhoHasTheNextTurn(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		told := make(chan struct{})
		locks := observed(t, s, tier.Observer{Waiting: func(context.Context, tier.Wait) { <-told }})
		mu := locks.Mutex("/locks/a", tier.WithHandOff(time.Hour))
		hold := acquire(t, mu)
		waiters := startAll(soon(t), t, 20, mu)
		time.Sleep(2 * time.Second)
		done := shutdown(soon(t), locks)
		release(t, hold)
		close(told)
		for _, w := range waiters {
			<-w.done
			wantErr(t, "a waiter", w.err, tier.ErrClosed)
		}
		var first *tier.WaitError
		if errors.As(waiters[0].err, &first); first.Here != nil {
			t.Errorf("the first waiter was blocked by its own process: %v", first)
		}
		done.granted(t)
	})
}

func TestShutdownGivesALingeringNodeUp(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks := process(t, s)
		kept := locks.Mutex("/locks/kept")
		lingers := locks.Mutex("/locks/lingers", tier.WithLinger(time.Hour))
		idle := locks.Mutex("/locks/idle", tier.WithLinger(time.Hour))
		release(t, acquire(t, idle))
		hold, later := acquire(t, kept), acquire(t, lingers)
		done := shutdown(soon(t), locks)
		need.Empty(t, "nodes that go on lingering", s.Queue("/locks/idle"))
		release(t, later)
		need.Empty(t, "nodes that begin to linger", s.Queue("/locks/lingers"))
		release(t, hold)
		done.granted(t)
	})
}

func TestShutdownEndsWithItsContextAndNamesWhatIsHeld(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks := process(t, s)
		hold := acquire(t, locks.Mutex("/locks/a"))
		err := locks.Shutdown(need.Within(t, time.Second))
		wantErr(t, "Shutdown", err, context.DeadlineExceeded)
		need.WantMention(t, err, "/locks/a")
		wantErr(t, "Release", hold.Release(), tier.ErrLost)
		wantQueue(t, s, "after the shutdown", 0)
	})
}

func TestShutdownOfAnIdleOrClosedRegistryReturnsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		idle, closed := process(t, s), process(t, s)
		closed.Close()
		for _, locks := range []*tier.Registry{idle, idle, closed, closed} {
			wantErr(t, "Shutdown", locks.Shutdown(soon(t)), nil)
		}
	})
}

func TestCloseEndsAShutdown(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks := process(t, s)
		hold := acquire(t, locks.Mutex("/locks/a"))
		done := shutdown(soon(t), locks)
		locks.Close()
		done.granted(t)
		wantErr(t, "Release", hold.Release(), tier.ErrLost)
	})
}

// A shutdown may begin when an Acquire was called but has no place at the gate yet. That Acquire fails, too.
func TestShutdownTurnsAwayWhoIsAboutToQueue(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks := process(t, s)
		defer release(t, acquire(t, process(t, s).Mutex("/locks/a")))
		queue := tier.Arrive(locks.Mutex("/locks/a"))
		ctx, cancel := context.WithCancel(t.Context())
		done := shutdown(ctx, locks)
		wantErr(t, "a goroutine that is about to queue", queue(soon(t)), tier.ErrClosed)
		cancel()
		<-done.done
		wantErr(t, "Shutdown", done.err, context.Canceled)
	})
}
