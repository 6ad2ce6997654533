package tier_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/test/logtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
)

func TestReleaseAtKeepsTheLockUntilThenWithoutWaiting(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		hold := acquire(t, process(t, s).Mutex("/locks/a"))
		other := process(t, s).Mutex("/locks/a")
		start := time.Now()
		need.OK(t, hold.ReleaseAt(start.Add(time.Minute)))
		need.Equal(t, "the time that ReleaseAt takes", time.Since(start), 0)
		wantErr(t, "try before the time has come", errOf(other.TryAcquire(t.Context())), tier.ErrLocked)
		wantErr(t, "hold before the time has come", hold.Err(), nil)
		next := acquire(t, other)
		need.Between(t, "until the next process has the lock", time.Since(start), time.Minute, time.Minute+time.Second)
		wantErr(t, "hold after its time", hold.Err(), tier.ErrReleased)
		release(t, next)
	})
}

func TestReleaseAtInThePastIsRelease(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks := process(t, s)
		hold := acquire(t, locks.Mutex("/locks/a"))
		need.OK(t, hold.ReleaseAt(time.Now()))
		wantErr(t, "the hold then", hold.Err(), tier.ErrReleased)
		wantErr(t, "a second ReleaseAt", hold.ReleaseAt(time.Now()), tier.ErrReleased)
		lost := acquire(t, locks.Mutex("/locks/a"))
		locks.Close()
		for _, when := range []time.Time{time.Now(), time.Now().Add(time.Minute)} {
			need.That(t, "ReleaseAt of a closed registry's hold: no error", lost.ReleaseAt(when) != nil)
		}
	})
}

// A hold may end before the time of its ReleaseAt, by a release or because the registry is closed. Then ReleaseAt has no further effect:
// its goroutine ends, and later holds are not affected.
func TestReleaseAtEndsWithItsHold(t *testing.T) {
	for name, closes := range map[string]bool{"released": false, "closed": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Server) {
				locks := process(t, s)
				mu := locks.Mutex("/locks/a")
				early := acquire(t, mu)
				work := early.Context(t.Context())
				need.OK(t, early.ReleaseAt(time.Now().Add(time.Hour)))
				if begun := time.Now(); closes {
					locks.Close()
					wantEnded(t, "the work", work, tier.ErrLost)
					need.AtMost(t, "the time that Close takes", time.Since(begun), time.Minute)
					return
				}
				release(t, early)
				synctest.Wait()
				need.Equal(t, "paths in use after the release", tier.Stakes(locks), 0)
				later := acquire(t, mu)
				time.Sleep(2 * time.Hour)
				wantErr(t, "the next hold, when the time of the first has come", later.Err(), nil)
				release(t, later)
			})
		})
	}
}

// A second call of Release must not release the hold of the next owner.
func TestReleaseTooManySendsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		mu := process(t, s).Mutex("/locks/a")
		hold := acquire(t, mu)
		inner := start(hold.Context(t.Context()), mu).granted(t)
		release(t, inner)
		wantErr(t, "second Release of the inner hold", inner.Release(), tier.ErrReleased)
		wantErr(t, "the inner hold", inner.Err(), tier.ErrReleased)
		wantErr(t, "a release too many", hold.Err(), nil)
		release(t, hold)
		next := acquire(t, mu)
		synctest.Wait()

		var m meter
		s.Script(m.note)
		for range 3 {
			wantErr(t, "second Release", hold.Release(), tier.ErrReleased)
		}
		synctest.Wait()
		need.Empty(t, "releases too many sent", m.take())
		release(t, next)
	})
}

func TestConcurrentReleasesOfOneHoldReleaseItOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		mu := process(t, s).Mutex("/locks/a")
		for range 50 {
			hold := acquire(t, mu)
			inner := start(hold.Context(t.Context()), mu).granted(t)
			errs := make([]error, 8)
			var wg sync.WaitGroup
			for i := range errs {
				wg.Go(func() { errs[i] = inner.Release() })
			}
			wg.Wait()
			succeeded := 0
			for _, err := range errs {
				if err == nil {
					succeeded++
				} else if !errors.Is(err, tier.ErrReleased) {
					t.Errorf("Release: got %v, want nil or ErrReleased", err)
				}
			}
			need.Equal(t, "how many of 8 releases succeed", succeeded, 1)
			wantErr(t, "the outer hold", hold.Err(), nil)
			release(t, hold)
		}
	})
}

func TestHoldOfAnotherMutexDoesNotReenter(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks, other := process(t, s), process(t, s)
		a := acquire(t, locks.Mutex("/locks/a"))
		ctx := a.Context(soon(t))
		b := acquire(t, locks.Mutex("/locks/b"))
		anotherPath := start(ctx, locks.Mutex("/locks/b")).blocked(t)
		anotherProcess := start(ctx, other.Mutex("/locks/a")).blocked(t)
		release(t, b)
		release(t, anotherPath.granted(t))
		release(t, a)
		<-anotherProcess.done // that context has ended together with the hold a
		wantErr(t, "Acquire with the context of a released hold", anotherProcess.err, tier.ErrReleased)
	})
}

// A hold that has ended stays ended, even if another hold of the same ownership still lives, and even if the hold was lost.
func TestDetachedContextDoesNotReviveAHold(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		mu := process(t, s).Mutex("/locks/a")
		outer := acquire(t, mu)
		dead := context.WithoutCancel(outer.Context(soon(t)))
		inner := start(dead, mu).granted(t)
		release(t, outer)
		waiter := start(dead, mu).blocked(t)
		release(t, inner)
		lostHold := waiter.granted(t)
		dead = context.WithoutCancel(lostHold.Context(soon(t)))
		s.Expire("/locks/a", 0)
		<-lostHold.Lost()
		_ = lostHold.Release() // returns ErrLost
		release(t, start(dead, mu).granted(t))
	})
}

func TestReentryFailsAfterLoss(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		mu := process(t, s).Mutex("/locks/a")
		hold := acquire(t, mu)
		ctx := hold.Context(t.Context())
		s.Expire("/locks/a", 0)
		<-hold.Lost()
		for name, ctx := range map[string]context.Context{"hold's": ctx, "detached": context.WithoutCancel(ctx)} {
			wantErr(t, fmt.Sprintf("Acquire after loss with the %s context", name), errOf(mu.Acquire(ctx)), tier.ErrLost)
			wantErr(t, fmt.Sprintf("TryAcquire after loss with the %s context", name), errOf(mu.TryAcquire(ctx)), tier.ErrLost)
		}
		wantErr(t, "Release after loss", hold.Release(), tier.ErrLost)
	})
}

// A jobKey is the key of the value that contexts in these tests carry.
type jobKey struct{}

// The function wantEnded fails the test unless ctx, and a context that is derived from ctx, have ended with the cause want.
func wantEnded(t *testing.T, what string, ctx context.Context, want error) {
	t.Helper()
	derived, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, ctx := range []context.Context{ctx, derived} {
		need.That(t, what+": not done", closedNow(ctx.Done()))
		need.That(t, what+": no error", ctx.Err() != nil)
		wantErr(t, what+": cause", context.Cause(ctx), want)
	}
}

func TestContextOfAHoldThatIsOverIsDoneWhenItReturns(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		hold := acquire(t, process(t, s).Mutex("/locks/a"))
		parents := map[string]context.Context{"a parent that ends": t.Context(), "one that does not": context.Background()}
		hold.Context(parents["a parent that ends"]) // the hold remembers this context
		s.Expire("/locks/a", 0)
		<-hold.Lost()
		for name, parent := range parents {
			wantEnded(t, "lost, "+name, hold.Context(parent), tier.ErrLost)
		}
		_ = hold.Release() // returns ErrLost
		for name, parent := range parents {
			wantEnded(t, "released, "+name, hold.Context(parent), tier.ErrReleased)
		}
		need.Equal(t, "contexts that the hold knows of", tier.Derived(hold), 0)
	})
}

func TestCauseOfALostHoldsContextIsTheLossThoughItIsReleasedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		hold := acquire(t, process(t, s).Mutex("/locks/a"))
		ctx := hold.Context(t.Context())
		s.Expire("/locks/a", 0)
		<-hold.Lost()
		_ = hold.Release() // returns ErrLost
		wantEnded(t, "lost and released", ctx, tier.ErrLost)
	})
}

func TestContextMadeDuringTheReleaseEndsWithIt(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		mu := process(t, s).Mutex("/locks/a")
		outer := acquire(t, mu)
		ctx := outer.Context(t.Context())
		for range 500 {
			hold := start(ctx, mu).granted(t)
			var both sync.WaitGroup
			var derived context.Context
			var begun atomic.Bool
			both.Go(func() {
				begun.Store(true)
				derived = hold.Context(ctx)
			})
			for !begun.Load() { // so that the loop and the release run at the same time
				runtime.Gosched()
			}
			hold.Release()
			if both.Wait(); derived.Err() == nil {
				t.Fatal("a context outlives its hold")
			}
		}
		release(t, outer)
	})
}

// A context that is derived from the context of a hold ends at the same moment as that context, as usual in the standard library. Both have
// ended when Release or cancel returns.
func TestContextEndsWhenItsHoldOrItsParentDoes(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		hold := acquire(t, process(t, s).Mutex("/locks/a"))
		enough := errors.New("enough")
		parent, cancel := context.WithCancelCause(t.Context())
		derive := func(parent context.Context) []context.Context {
			first, second := hold.Context(parent), hold.Context(context.WithValue(parent, jobKey{}, 1))
			below, cancel := context.WithTimeout(second, time.Hour)
			t.Cleanup(cancel)
			return []context.Context{first, second, below}
		}
		withParent, withHold := derive(parent), append(derive(t.Context()), derive(context.Background())...)
		cancel(enough)
		for i, ctx := range withParent {
			wantEnded(t, "end of the parent, context "+strconv.Itoa(i), ctx, enough)
		}
		for i, ctx := range withHold {
			need.Equal(t, "context "+strconv.Itoa(i)+" at the end of another one's parent", [2]error{ctx.Err(), context.Cause(ctx)}, [2]error{})
		}
		release(t, hold)
		for i, ctx := range withHold {
			wantEnded(t, "release, context "+strconv.Itoa(i), ctx, tier.ErrReleased)
		}
	})
}

func TestContextHasTheValuesAndTheDeadlineOfItsParent(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		hold := acquire(t, process(t, s).Mutex("/locks/a"))
		defer release(t, hold)
		hour := need.Within(t, time.Hour)
		for _, parent := range []context.Context{context.Background(), t.Context(), hour} {
			first := hold.Context(context.WithValue(parent, jobKey{}, 1))
			second := hold.Context(context.WithValue(parent, jobKey{}, 2))
			none := hold.Context(parent)
			need.Equal(t, "values", [3]any{first.Value(jobKey{}), second.Value(jobKey{}), none.Value(jobKey{})}, [3]any{1, 2, nil})
			got, ok := none.Deadline()
			if want, has := parent.Deadline(); got != want || ok != has {
				t.Errorf("deadline: got %v %t, want %v %t", got, ok, want, has)
			}
		}
		ctx := hold.Context(hour)
		<-ctx.Done()
		wantEnded(t, "deadline", ctx, context.DeadlineExceeded)
		wantErr(t, "err after the deadline", ctx.Err(), context.DeadlineExceeded)
	})
}

// An uncomparable context cannot be the key of a map.
type uncomparable struct {
	context.Context
	_ []int
}

func TestContextIsDerivedFromAnyKindOfContext(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		hold := acquire(t, process(t, s).Mutex("/locks/a"))
		first, second := hold.Context(uncomparable{Context: t.Context()}), hold.Context(uncomparable{Context: t.Context()})
		release(t, hold)
		wantEnded(t, "first", first, tier.ErrReleased)
		wantEnded(t, "second", second, tier.ErrReleased)
	})
}

// A reused is a context that a framework uses for one request after the other.
type reused struct{ context.Context }

func TestContextThatIsUsedAgainIsNotTakenForTheOneThatHasEnded(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		hold := acquire(t, process(t, s).Mutex("/locks/a"))
		ctx, cancel := context.WithCancel(t.Context())
		request := &reused{ctx}
		hold.Context(request)
		cancel()
		request.Context = t.Context()
		work := hold.Context(request)
		synctest.Wait() // until the hold has noticed that the first request has ended
		wantErr(t, "the next request", context.Cause(work), nil)
		need.That(t, "the next request has two contexts", hold.Context(request) == work)
		release(t, hold)
	})
}

// A long hold may serve many jobs, some with one shared context and others with contexts that end. A contender may serve many holds. The
// test fails if any of these leaves memory behind.
func TestContextsKeepNothingInTheirHold(t *testing.T) { // I10
	for name, opts := range map[string][]tier.Option{"as ever": nil, "with the detection of leaks": {tier.WithLeakDetection()}} {
		t.Run(name, func(t *testing.T) { contextsKeepNothing(t, opts...) })
	}
}

func contextsKeepNothing(t *testing.T, opts ...tier.Option) {
	metered(t, func(t *testing.T, _ *memory.Server, _ *meter, process func(...tier.Option) *tier.Mutex) {
		mu := process(append(opts, tier.WithLinger(time.Hour))...)
		hold := acquire(t, mu)
		renew := func() { // all holds use one context
			release(t, hold)
			hold = need.Get(mu.Acquire(t.Context()))(t)
		}
		use := func(ctx context.Context) { hold.Context(ctx).Done() } // calls Done, as work does
		request := new(reused)
		for name, f := range map[string]func(i int){
			"one parent that never ends": func(int) { use(context.Background()) },
			"one parent that ends":       func(int) { use(t.Context()) },
			"parents that have ended": func(int) {
				ctx, cancel := context.WithCancel(t.Context())
				use(ctx)
				cancel()
				synctest.Wait() // many goroutines at the same time cost memory, too
			},
			"a parent that is used again before it is known that it has ended": func(int) {
				for range 2 {
					ctx, cancel := context.WithCancel(t.Context())
					request.Context = ctx
					use(request)
					cancel()
				}
				synctest.Wait()
			},
			"holds that were released": func(int) {
				renew()
				use(t.Context())
			},
		} {
			const n = 3000
			each := heapOf(func() {
				for i := range n {
					f(i)
				}
			}) / n
			t.Logf("%s: %d B each", name, each)
			if each > 50 { // a context that is kept takes more than 150 bytes
				t.Errorf("%s: %d B kept for each context, want none", name, each)
			}
		}
		release(t, hold)
	})
}

// forgetting acts like a program that drops its hold without a release. When it returns, no stack frame of the test refers to the hold.
//
//go:noinline
func forgetting(t *testing.T, mu *tier.Mutex, with func(t *testing.T, hold *tier.Hold)) {
	t.Helper()
	with(t, acquire(t, mu))
}

// The function collected acquires and drops a hold of its own, and waits until the garbage collector has found that hold. By then the
// garbage collector has also found all holds that were dropped earlier.
func collected(t *testing.T, locks *tier.Registry, log *logtest.Log) {
	t.Helper()
	for range 2 { // holds that the first cycle finds may refer to more holds
		mu := locks.Mutex(fmt.Sprintf("/locks/sentinel%d", time.Now().UnixNano()))
		forgetting(t, mu, func(*testing.T, *tier.Hold) {})
		for n := 0; len(log.Lines(slog.LevelWarn, "path="+mu.Path())) == 0; n++ {
			if runtime.GC(); n == 10_000 {
				t.Fatalf("the hold of %s is not reported: %s", mu.Path(), log)
			}
		}
		time.Sleep(1) // the next path then has another name
	}
}

const forgot = "a hold was dropped without Release"

// The warning comes when the program has no reference to the hold left. Contexts that were made from the hold do not count, even if their
// parents still exist.
func TestHoldThatWasForgottenIsWarnedOf(t *testing.T) {
	plain := func(locks *tier.Registry) *tier.Mutex { return locks.Mutex("/locks/a") }
	reader := func(locks *tier.Registry) *tier.Mutex { return locks.RWMutex("/locks/a").Reader() }
	for name, c := range map[string]struct {
		mutex  func(*tier.Registry) *tier.Mutex
		forget func(t *testing.T, hold *tier.Hold)
	}{
		"a hold":                             {plain, func(*testing.T, *tier.Hold) {}},
		"to read":                            {reader, func(*testing.T, *tier.Hold) {}},
		"with a context":                     {plain, func(_ *testing.T, hold *tier.Hold) { hold.Context(context.Background()) }},
		"with a context of one that may end": {plain, func(t *testing.T, hold *tier.Hold) { hold.Context(t.Context()) }},
		"that was entered again": {plain, func(t *testing.T, hold *tier.Hold) {
			start(hold.Context(t.Context()), tier.MutexOf(hold)).granted(t)
			release(t, hold)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Server) {
				locks, log := logged(t, s, tier.WithLeakDetection())
				forgetting(t, c.mutex(locks), c.forget)
				collected(t, locks, log)
				line := wantWarnings(t, log, "after a collection", "path=/locks/a", 1)
				need.Has(t, "told", line, forgot, "token=", "since=2000-01-01T", "_test.go:")
				need.That(t, "the place is in this package: "+line, !strings.Contains(line, "/tier/mutex.go:"))
			})
		})
	}
}

// There is no warning about a hold that the program can still release, or has released.
func TestHoldThatWasNotForgottenIsNotWarnedOf(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks, log := logged(t, s, tier.WithLeakDetection())
		mutex := func(name string) *tier.Mutex { return locks.Mutex("/locks/" + name) }
		kept := acquire(t, mutex("kept"))
		var work context.Context
		forgetting(t, mutex("carried"), func(t *testing.T, hold *tier.Hold) { work = hold.Context(t.Context()) })
		forgetting(t, mutex("released"), func(t *testing.T, hold *tier.Hold) { release(t, hold) })
		forgetting(t, mutex("later"), func(t *testing.T, hold *tier.Hold) {
			wantErr(t, "ReleaseAt", hold.ReleaseAt(time.Now().Add(time.Hour)), nil)
		})
		err := mutex("done").Do(t.Context(), func(ctx context.Context) error {
			return mutex("done").Do(ctx, func(context.Context) error { return nil })
		})
		wantErr(t, "Do", err, nil)
		collected(t, locks, log)
		release(t, tier.HoldFrom(work, mutex("carried")))
		release(t, kept)
		time.Sleep(2 * time.Hour)
		collected(t, locks, log)
		for _, name := range []string{"kept", "carried", "released", "later", "done"} {
			wantWarnings(t, log, "after a collection", "path=/locks/"+name, 0)
		}
	})
}

// There is no warning about a hold of a closed registry, because closing it has released the lock.
func TestHoldOfAClosedRegistryIsNotWarnedOf(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		log, logger := logtest.New(slog.LevelInfo)
		store := &special{logger: logger}
		locks, others := specially(t, s, store, tier.WithLeakDetection()), specially(t, s, &special{logger: logger}, tier.WithLeakDetection())
		forgetting(t, locks.Mutex("/locks/a"), func(*testing.T, *tier.Hold) { locks.Close() })
		collected(t, others, log)
		wantWarnings(t, log, "after a collection", "path=/locks/a", 0)
	})
}

// If a goroutine waits behind a hold of its own process, the error of the wait says where that hold was acquired.
func TestWaitSaysWhereTheHoldInTheWayWasAcquired(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		for place, opts := range map[string][]tier.Option{
			"hold_test.go:": {tier.WithLeakDetection()},
			"not known without tier.WithLeakDetection": nil,
		} {
			locks, log := logged(t, s, opts...)
			mu := locks.Mutex("/locks/a")
			hold, another := acquire(t, mu), acquire(t, locks.Mutex("/locks/another"))
			wait := start(soon(t), mu)
			time.Sleep(10 * time.Second)
			line := wantWarnings(t, log, "after 10 s", ownHold, 1)
			_, acquired, _ := strings.Cut(line, "acquired=")
			need.Has(t, "the place", acquired, place)
			need.That(t, "several places: "+acquired, !strings.Contains(acquired, ";"))
			release(t, hold)
			release(t, another)
			release(t, wait.granted(t))
		}
	})
}
