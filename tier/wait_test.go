package tier_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/locktest"
	"github.com/tierlock/tierlock/internal/test/logtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
)

// waitError acquires mu with a context that ends after two seconds, and returns the error. It fails the test if mu is acquired.
func waitError(t *testing.T, ctx context.Context, mu *tier.Mutex) *tier.WaitError {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	hold, err := mu.Acquire(ctx)
	if err == nil {
		hold.Release()
		t.Fatal("got the lock")
	}
	wantErr(t, "a wait whose context ends", err, context.DeadlineExceeded)
	var wait *tier.WaitError
	need.Must(t, fmt.Sprintf("no WaitError: %v", err), errors.As(err, &wait))
	need.Equal(t, "the path", wait.Path, mu.Path())
	need.Equal(t, "waited", wait.Waited.Round(100*time.Millisecond), 2*time.Second)
	return wait
}

func wantText(t *testing.T, err error, parts ...string) {
	t.Helper()
	need.That(t, "the error: "+err.Error(), strings.HasPrefix(err.Error(), "tier: acquire /locks/a: waited 2s: context deadline exceeded"))
	need.WantMention(t, err, parts...)
}

func TestWaitErrorNamesTheProcessThatHolds(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		holder, p := named(t, s, "billing"), process(t, s)
		hold := acquire(t, holder.Mutex("/locks/a"))
		mu := p.Mutex("/locks/a")
		for range 2 { // the second time, the watch exists already
			err := waitError(t, t.Context(), mu)
			need.That(t, fmt.Sprintf("%+v", err),
				err.Here == nil && err.Position == 1 && err.AheadHolds && err.Ahead.Token == hold.Token() && err.Ahead.PID == os.Getpid())
			wantText(t, err, fmt.Sprintf("; process %d on ", os.Getpid()), "(billing) has the lock, in the queue since 2000-01-01T00:00:00Z")
		}
		release(t, hold)
	})
}

func TestWaitErrorNamesTheProcessAhead(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		holder, second, p := process(t, s), named(t, s, "ahead"), process(t, s)
		hold := acquire(t, holder.Mutex("/locks/a"))
		ahead := start(soon(t), second.Mutex("/locks/a")).blocked(t)
		err := waitError(t, t.Context(), p.Mutex("/locks/a"))
		need.That(t, fmt.Sprintf("%+v", err), err.Position == 2 && !err.AheadHolds && err.Ahead.Label == "ahead" && err.Here == nil)
		wantText(t, err, "; 2 processes are ahead, the nearest of them is process ", "(ahead), in the queue since 2000-01-01T00:00:00Z")
		release(t, hold)
		release(t, ahead.granted(t))
	})
}

func TestWaitErrorTellsOfAnotherGoroutine(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		mu := process(t, s).Mutex("/locks/a")
		hold := acquire(t, mu)
		since := time.Now()
		time.Sleep(time.Minute)
		err := waitError(t, t.Context(), mu)
		if h := err.Here; h == nil || !h.Since.Equal(since) || h.Token != hold.Token() || h.Holds != 1 || h.Carried || err.Position != 0 {
			t.Errorf("%+v, here %+v", err, h)
		}
		wantText(t, err, "; another goroutine of this process has held the lock since 2000-01-01T00:00:00Z; or the caller itself holds the lock")
		release(t, hold)
	})
}

func TestWaitErrorTellsOfAnInnerHoldThatWasNotReleased(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		mu := process(t, s).Mutex("/locks/a")
		outer := acquire(t, mu)
		ctx := context.WithoutCancel(outer.Context(t.Context()))
		inner := start(ctx, mu).granted(t)
		release(t, outer)
		wait := waitError(t, ctx, mu)
		h := wait.Here
		need.That(t, fmt.Sprintf("%+v, here %+v", wait, h), h != nil && h.Carried && h.Holds == 1)
		wantText(t, wait, "; this process has held the lock since 2000-01-01T00:00:00Z: "+
			"the hold in the context of this call was released, but 1 reentrant holds were not released")
		release(t, inner)
	})
}

func TestWaitErrorSaysWhyTheStoreCannotBeReached(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks, p := dial(t, s, "")
		cut(p)
		err := waitError(t, t.Context(), locks.Mutex("/locks/a"))
		wantText(t, err, "memory cannot be reached")
	})
}

func TestWaitErrorAfterCloseAndAfterTheLimit(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		p := process(t, s)
		hold := acquire(t, p.Mutex("/locks/a"))
		var wait *tier.WaitError
		_, err := p.Mutex("/locks/a", tier.WithMaxWait(time.Second)).Acquire(t.Context())
		wantErr(t, "after the limit", err, tier.ErrWaitLimit)
		need.That(t, fmt.Sprintf("%v, want that it is here", err), errors.As(err, &wait) && wait.Here != nil)
		other := process(t, s)
		a := start(soon(t), other.Mutex("/locks/a")).blocked(t)
		other.Close()
		synctest.Wait()
		wantErr(t, "after Close", a.err, tier.ErrClosed)
		need.That(t, fmt.Sprintf("%v, want a WaitError", a.err), errors.As(a.err, &wait))
		release(t, hold)
	})
}

// If an attempt fails with an error that retrying cannot fix, all goroutines that wait for the attempt get the error.
func TestPermanentErrorReachesEveryWaiterAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks := process(t, s)
		attempts := 0
		s.Script(func(_ string, c queue.Command) (f memory.Fault) {
			if c.Op == queue.Enter && c.Linger == 0 {
				attempts++
				time.Sleep(time.Second)
				f.Refused = queue.Denied
			}
			return f
		})
		waiters := startAll(soon(t), t, 5, locks.Mutex("/locks/a"))
		other := start(soon(t), locks.Mutex("/locks/a", tier.WithLinger(time.Second))).blocked(t)
		for _, w := range waiters {
			<-w.done
			need.WantMention(t, w.err, "refused")
		}
		need.Equal(t, "attempts", attempts, 1)
		release(t, other.granted(t))
	})
}

func seclusion(length time.Duration) *second.GracePeriodError {
	return &second.GracePeriodError{Until: time.Now().Add(length), Reason: "the server is new"}
}

// wantGracePeriod fails the test unless err is the error of a grace period with the same time and reason as want.
func wantGracePeriod(t *testing.T, err error, want *second.GracePeriodError) {
	t.Helper()
	var q *tier.GracePeriodError
	need.That(t, fmt.Sprintf("%v, want one of %v", err, want), errors.As(err, &q) && q.Until.Equal(want.Until) && q.Reason == want.Reason)
}

func TestGracePeriodIsToldByTryByWaitAndByErr(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		q := seclusion(10 * time.Second)
		locks := specially(t, s, &special{gracePeriod: q})
		mu := locks.Mutex("/locks/a")
		wantGracePeriod(t, locks.Err(), q)
		need.That(t, fmt.Sprintf("of no lock: %v", locks.Err()), !errors.Is(locks.Err(), tier.ErrLocked))
		for _, err := range []error{errOf(mu.TryAcquire(t.Context())), errOf(locks.Semaphore(pool, 1).TryAcquire(t.Context(), 1))} {
			wantGracePeriod(t, err, q)
			wantErr(t, "TryAcquire", err, tier.ErrLocked)
		}
		wait := waitError(t, t.Context(), mu)
		wantGracePeriod(t, wait, q)
		wantText(t, wait, ": no grants until "+q.Until.Format(time.TimeOnly)+": the server is new")
		need.That(t, fmt.Sprintf("%+v", wait),
			(*second.GracePeriodError)(wait.GracePeriod) == q && wait.Position == 0 && !wait.AheadHolds && !errors.Is(wait, tier.ErrLocked))

		hold := acquire(t, mu)
		need.That(t, "granted in the grace period", !time.Now().Before(q.Until))
		wantErr(t, "Err after the grace period", locks.Err(), nil)
		wait = waitError(t, t.Context(), mu)
		need.That(t, fmt.Sprintf("%+v, want a wait for another goroutine", wait), wait.GracePeriod == nil && wait.Here != nil)
		release(t, hold)
	})
}

// A waiter may learn of the grace period before it knows its place in the queue.
func TestWaitWhosePlaceIsUnknownTellsOfTheGracePeriod(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		q := seclusion(10 * time.Second)
		locks := specially(t, s, &special{gracePeriod: q, unseen: true})
		wantGracePeriod(t, waitError(t, t.Context(), locks.Mutex("/locks/a")), q)
	})
}

// In a grace period, even the first contender of the queue does not have the lock.
func TestWaitInAGracePeriodNamesNoHolder(t *testing.T) {
	q := seclusion(0)
	wait := tier.StandingWait(second.Standing{Ahead: 1, Nearest: second.Contender{PID: 7, Host: "there"}, GracePeriod: q})
	err := &tier.WaitError{Wait: wait, Err: tier.ErrWaitLimit}
	want := "tier: acquire : waited 0s: wait limit reached; process 7 on there is ahead"
	need.That(t, "the one ahead is said to have the lock", !wait.AheadHolds)
	need.Equal(t, "the error", err.Error(), want)
	if wait := tier.StandingWait(second.Standing{Ahead: 1}); !wait.AheadHolds { // outside of one, a contender ahead counts as the holder
		t.Errorf("%+v, want a wait for the holder", wait)
	}
}

func TestWaitForNobodyNamesNobody(t *testing.T) {
	err := &tier.WaitError{Wait: tier.Wait{Path: "/a", Waited: time.Second}, Err: tier.ErrWaitLimit}
	need.Equal(t, "the error", err.Error(), "tier: acquire /a: waited 1s: wait limit reached")
}

// A process that got the lock before the grace period keeps it, and may hand it off.
func TestGracePeriodKeepsNobodyFromWhatItHolds(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		q := seclusion(0)
		locks := specially(t, s, &special{gracePeriod: q})
		hold := acquire(t, locks.Mutex("/locks/a"))
		q.Until = time.Now().Add(time.Minute)
		next := start(soon(t), locks.Mutex("/locks/a")).blocked(t)
		release(t, hold)
		release(t, next.granted(t))
		need.That(t, "the lock was not handed off in the grace period", !time.Now().After(q.Until))
	})
}

// wantWarnings fails the test unless the log has exactly want warnings that contain text. It returns the last of them.
func wantWarnings(t *testing.T, log *logtest.Log, when, text string, want int) (last string) {
	t.Helper()
	synctest.Wait()
	lines := log.Lines(slog.LevelWarn, text)
	need.That(t, fmt.Sprintf("%s: %d warnings with %q, want %d, in:\n%s", when, len(lines), text, want, log), len(lines) == want)
	if len(lines) > 0 {
		last = lines[len(lines)-1]
	}
	return last
}

const ownHold = "is blocked by a hold of its own process"

// If a goroutine waits for a lock that another goroutine of the same process holds, one warning is logged. The context of the waiter does
// not carry the hold.
func TestWaitBehindAHoldOfItsOwnProcessIsWarnedOf(t *testing.T) {
	type releaser interface{ Release() error }
	acquire := func(t *testing.T, mu *tier.Mutex) func() (releaser, error) {
		return func() (releaser, error) { return mu.Acquire(soonish(t)) }
	}
	take := func(t *testing.T, s *tier.Semaphore, k int) func() (releaser, error) {
		return func() (releaser, error) { return s.Acquire(soonish(t), k) }
	}
	type row struct {
		calls func(t *testing.T, locks *tier.Registry) (holds, waits func() (releaser, error))
		says  []string
	}
	each(t, map[string]row{
		"a mutex": {func(t *testing.T, locks *tier.Registry) (holds, waits func() (releaser, error)) {
			mu := locks.Mutex("/locks/a")
			return acquire(t, mu), acquire(t, mu)
		}, []string{ownHold, "pass the context of the hold to Acquire", "path=/locks/a", "token=", "since=2000-01-01T"}},
		"a reader that is to write": {func(t *testing.T, locks *tier.Registry) (holds, waits func() (releaser, error)) {
			mu := locks.RWMutex("/locks/a")
			return acquire(t, mu.Reader()), acquire(t, mu.Writer())
		}, []string{ownHold}},
		"a writer that is to read": {func(t *testing.T, locks *tier.Registry) (holds, waits func() (releaser, error)) {
			mu := locks.RWMutex("/locks/a")
			return acquire(t, mu.Writer()), acquire(t, mu.Reader())
		}, []string{ownHold}},
		"permits": {func(t *testing.T, locks *tier.Registry) (holds, waits func() (releaser, error)) {
			s := locks.Semaphore("/locks/a", 5)
			return take(t, s, 3), take(t, s, 3)
		}, []string{"is blocked by permits of its own process", "acquire all permits at once", "path=/locks/a permits=3 taken=3 of=5"}},
	}, func(t *testing.T, s *memory.Server, c row) {
		locks, log := logged(t, s)
		holds, waits := c.calls(t, locks)
		hold := must(holds())(t)
		time.Sleep(time.Minute)
		wait := begin(waits).blocked(t)
		time.Sleep(5 * time.Second)
		later := begin(waits).blocked(t)
		time.Sleep(5*time.Second - 1)
		wantWarnings(t, log, "in 10 s", "", 0)
		time.Sleep(1)
		line := wantWarnings(t, log, "after 10 s", "", 1)
		need.Has(t, "the warning", line, append(c.says, "waited=10s", "waiters=2")...)
		time.Sleep(70 * time.Minute) // after an hour, a second warning about the path is allowed
		wantWarnings(t, log, "after more than an hour", "", 1)
		release(t, hold)
		release(t, wait.granted(t))
		release(t, later.granted(t))
	})
}

// soonish is like soon, but for waits that take hours.
func soonish(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 48*time.Hour)
	t.Cleanup(cancel)
	return ctx
}

// Many goroutines wait for a long time, but each hold that they wait for is short. That causes no warning.
func TestQueueThatMovesIsNoWaitBehindAHold(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks, log := logged(t, s)
		var all sync.WaitGroup
		for range 200 {
			all.Go(func() {
				hold, err := locks.Mutex("/locks/a").Acquire(soonish(t))
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(10*time.Second - 1)
				release(t, hold)
			})
		}
		all.Wait()
		wantWarnings(t, log, "at the end", "", 0)
	})
}

// Several waiters give up after 9 s each, one after the other. No single wait is long enough for a warning.
func TestWaitsThatEndAreNotAddedUp(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks, log := logged(t, s)
		mu := locks.Mutex("/locks/a", tier.WithMaxWait(9*time.Second))
		hold := acquire(t, mu)
		for range 5 {
			wantErr(t, "Acquire", errOf(mu.Acquire(t.Context())), tier.ErrWaitLimit)
		}
		first := start(t.Context(), mu)
		time.Sleep(3 * time.Second)
		last := start(soon(t), locks.Mutex("/locks/a"))
		time.Sleep(10*time.Second - 1)
		wantWarnings(t, log, "before anybody has waited for 10 s", "", 0)
		time.Sleep(1)
		wantWarnings(t, log, "when the second one has", ownHold, 1)
		wantErr(t, "Acquire", first.err, tier.ErrWaitLimit)
		release(t, hold)
		release(t, last.granted(t))
	})
}

// There is no warning if the goroutines wait for a hold of another process.
func TestWaitBehindAnotherProcessIsNotWarnedOf(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks, log := logged(t, s)
		other := process(t, s)
		before := acquire(t, locks.Mutex("/locks/a", tier.WithStrictOrder()))
		hold := start(soon(t), other.Mutex("/locks/a")).blocked(t)
		lock := start(soonish(t), locks.Mutex("/locks/a")).blocked(t)
		time.Sleep(9 * time.Second)
		release(t, before)
		time.Sleep(time.Hour)
		wantWarnings(t, log, "after an hour", "", 0)
		release(t, hold.granted(t))
		release(t, lock.granted(t))
	})
}

// A request for all permits is blocked by permits of its own process for less than 10 s, and then only by those of other processes. That
// causes no warning.
func TestPermitsThatComeAndGoAreNotWarnedOf(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks, log := logged(t, s)
		five := locks.Semaphore("/locks/s", 5)
		take := func(k int) *tier.Permits { return must(five.Acquire(t.Context(), k))(t) }
		one, two := take(1), take(2)
		others := must(process(t, s).Semaphore("/locks/s", 5).Acquire(t.Context(), 2))(t)
		more := begin(func() (*tier.Permits, error) { return five.Acquire(soonish(t), 5) }).blocked(t)
		time.Sleep(9 * time.Second)
		release(t, two)
		time.Sleep(9 * time.Second)
		release(t, one)
		time.Sleep(time.Hour)
		wantWarnings(t, log, "after an hour", "", 0)
		release(t, others)
		release(t, more.granted(t))
	})
}

// A waiter is already there when its process gets the permits that block it. The warning comes in each of these cases.
func TestPermitsThatGetInTheWayLaterAreWarnedOf(t *testing.T) {
	type way = func(t *testing.T, s *memory.Server, five *tier.Semaphore) (first, last *call[*tier.Permits])
	each(t, map[string]way{
		"by a try": func(t *testing.T, s *memory.Server, five *tier.Semaphore) (first, last *call[*tier.Permits]) {
			answerLate(s, queue.Try, time.Second/2)
			first = begin(func() (*tier.Permits, error) { return five.TryAcquire(t.Context(), 3) }).blocked(t)
			return first, begin(func() (*tier.Permits, error) { return five.Acquire(soon(t), 3) })
		},
		"from another process": func(t *testing.T, s *memory.Server, five *tier.Semaphore) (first, last *call[*tier.Permits]) {
			others := must(process(t, s).Semaphore("/locks/s", 5).Acquire(t.Context(), 2))(t)
			first = begin(func() (*tier.Permits, error) { return five.Acquire(soon(t), 4) }).blocked(t)
			last = begin(func() (*tier.Permits, error) { return five.Acquire(soon(t), 3) }).blocked(t)
			time.Sleep(time.Second)
			release(t, others)
			return first, last
		},
	}, func(t *testing.T, s *memory.Server, get way) {
		locks, log := logged(t, s)
		first, last := get(t, s, locks.Semaphore("/locks/s", 5))
		time.Sleep(12 * time.Second)
		wantWarnings(t, log, "after 12 s", "is blocked by permits of its own process", 1)
		release(t, first.granted(t))
		release(t, last.granted(t))
	})
}

// In a process with many long holds and waiters, a path is logged at most once an hour. A hold that never ends is still logged.
func TestPathIsWarnedOfOnceAnHour(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks, log := logged(t, s)
		mu := locks.Mutex("/locks/a")
		hold := acquire(t, mu)
		for range 120 {
			next := start(soonish(t), mu).blocked(t)
			time.Sleep(time.Minute)
			release(t, hold)
			hold = next.granted(t)
		}
		line := wantWarnings(t, log, "after two hours", ownHold, 2)
		need.That(t, line+": it is not an hour after the first", strings.HasPrefix(line, "time=2000-01-01T01:00:10.000Z"))
		last := start(soonish(t), mu)
		time.Sleep(time.Hour)
		wantWarnings(t, log, "an hour later", ownHold, 3)
		release(t, hold)
		release(t, last.granted(t))
	})
}

// After a day, a wait behind a hold of its own process counts as a deadlock. The process reports it to zktest once, after it has logged the
// warning.
func TestWaitWithoutEndIsADeadlockAfterADay(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks, log := logged(t, s)
		told, before := make(chan string, 10), second.Deadlock
		second.Deadlock = func(what string) { told <- what }
		defer func() { second.Deadlock = before }()
		mu := locks.Mutex("/locks/a")
		hold := acquire(t, mu)
		wait := start(soonish(t), mu).blocked(t)
		time.Sleep(24*time.Hour - time.Minute)
		wantWarnings(t, log, "within a day", ownHold, 1)
		need.Equal(t, "reports in less than a day", len(told), 0)
		time.Sleep(2 * time.Minute)
		select {
		case what := <-told:
			need.Has(t, "the warning", what, ownHold, "path=/locks/a")
		default:
			t.Error("no report after a day")
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		need.Equal(t, "further reports", len(told), 0)
		release(t, hold)
		release(t, wait.granted(t))
	})
}

// The error of each wait, also of a wait for permits, contains the latest reason for which the store refuses. If the refusals last,
// Registry.Err returns that reason, too.
func TestWaitErrorSaysWhyTheStoreRefuses(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		p := process(t, s)
		mu, sem := p.Mutex("/locks/a"), p.Semaphore("/permits", 2)
		s.Script(func(_ string, c queue.Command) (f memory.Fault) {
			if c.Op == queue.Enter || c.Op == queue.Try {
				f.Refused = queue.Failed
			}
			return f
		})
		for range 2 {
			err := waitError(t, t.Context(), mu)
			wantErr(t, "the refusal", err.Refusal, tier.ErrUnavailable)
			wantErr(t, "the error", err, tier.ErrUnavailable)
			wantText(t, err, ": the last request failed: enter refused")
		}
		wantErr(t, "permits", need.ErrOf(sem.Acquire(need.Within(t, time.Second), 1)), tier.ErrUnavailable)
		wantErr(t, "a try", need.ErrOf(mu.TryAcquire(t.Context())), tier.ErrUnavailable)
		wantErr(t, "a try for permits", need.ErrOf(p.Semaphore("/more", 2).TryAcquire(t.Context(), 1)), tier.ErrUnavailable)
		wantErr(t, "Err", p.Err(), tier.ErrUnavailable)
		need.WantMention(t, p.Err(), "the store refuses every request to acquire", " refused")
		s.Script(nil)
		hold := acquire(t, mu)
		wantErr(t, "Err once it is served", p.Err(), nil)
		release(t, hold)
	})
}

// A store that refuses new contenders takes no lock away. A process that has the lock can still hand it off.
func TestRefusalTakesNoLockFromItsProcess(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		p, _ := locktest.Join(t, s, "")
		mu := p.Mutex("/locks/a")
		hold := acquire(t, mu)
		s.Script(func(_ string, c queue.Command) (f memory.Fault) {
			if c.Op == queue.Enter {
				f.Refused = queue.Failed
			}
			return f
		})
		p.Mutex("/locks/b").Acquire(need.Within(t, 10*time.Second))
		wantErr(t, "Err", p.Err(), tier.ErrUnavailable)
		next := start(soon(t), mu).blocked(t)
		token := hold.Token()
		release(t, hold)
		got := next.granted(t)
		need.Equal(t, "the token", got.Token(), token)
		release(t, got)
	})
}
