package tier_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"path"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zklock/zktest"
)

func TestHandOffGoesByTheMutexOfTheOwner(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks := process(t, s) // in strict order by default
		generous := locks.Mutex("/locks/a", tier.WithHandOff(time.Hour))
		strict := locks.Mutex("/locks/a", tier.WithHandOff(time.Hour), tier.WithStrictOrder()) // the last option counts
		first := acquire(t, generous)
		second := start(soon(t), strict).blocked(t)
		third := start(soon(t), strict).blocked(t)
		release(t, first)
		handed := second.granted(t)
		need.That(t, "the owner that hands off did not", handed.Token() == first.Token())
		release(t, handed)
		next := third.granted(t)
		need.That(t, "the strict owner handed off", next.Token() != handed.Token())
		release(t, next)
	})
}

func TestLingerGoesByTheMutexOfTheLastOwner(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks := process(t, s)
		long, short := locks.Mutex("/locks/a", tier.WithLinger(time.Minute)), locks.Mutex("/locks/a", tier.WithLinger(time.Second))
		gone := func(after time.Duration) bool {
			time.Sleep(after)
			synctest.Wait()
			return len(s.Queue("/locks/a")) == 0
		}
		token := func(mu *tier.Mutex) int64 {
			hold := acquire(t, mu)
			defer release(t, hold)
			return hold.Token()
		}
		first := token(short)
		need.That(t, "the node did not linger", token(long) == first)
		need.That(t, "the node lingered for less than the last owner's mutex says", !gone(59*time.Second))
		need.That(t, "the node lingers for longer than the last owner's mutex says", gone(time.Second))
		token(long)
		token(short)
		need.That(t, "the node lingers as the mutex of an earlier owner says", gone(time.Second))
		token(short)
		token(locks.Mutex("/locks/a"))
		need.That(t, "the node lingers though the last owner's mutex does not", gone(0))
	})
}

// A foreign option is an option for the locks of another store.
type foreign struct{ tier.Option }

func TestWrongOptionIsReportedByTheMethodsOfTheMutex(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks := process(t, s)
		for want, opt := range map[string]tier.Option{
			"wait limit -1s: negative":                 tier.WithMaxWait(-time.Second),
			"hand-off budget -1s: want more than 0":    tier.WithHandOff(-time.Second),
			"for no hand-off use tier.WithStrictOrder": tier.WithHandOff(0), // such a value may come from an empty configuration
			"linger -1s: negative":                     tier.WithLinger(-time.Second),
			"option of type tier_test.foreign":         foreign{},
		} {
			mu := locks.Mutex("/locks/a", opt)
			_, acquired := mu.Acquire(t.Context())
			_, tried := mu.TryAcquire(t.Context())
			_, listed := mu.Contenders(t.Context())
			for _, err := range []error{acquired, tried, listed, mu.Do(t.Context(), nil), mu.Revoke(t.Context())} {
				need.WantMention(t, err, want, "/locks/a")
			}
		}
		wantQueue(t, s, "of wrong mutexes", 0)
	})
}

func TestMaxWaitLimitsTheWaitAndNotTheWork(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks := process(t, s)
		mu := locks.Mutex("/locks/a", tier.WithMaxWait(time.Second))
		need.OK(t, mu.Do(soon(t), func(ctx context.Context) error {
			time.Sleep(time.Minute)
			wantErr(t, "the work's context", context.Cause(ctx), nil)
			began := time.Now()
			err := mu.Do(t.Context(), func(context.Context) error { t.Error("got the lock twice"); return nil })
			wantErr(t, "Do of another one", err, tier.ErrWaitLimit)
			need.That(t, fmt.Sprintf("the end of a context: %v", err), !errors.Is(err, context.DeadlineExceeded))
			need.Equal(t, "waited for", time.Since(began), time.Second)
			return nil
		}))
		wantQueue(t, s, "after the work", 0)
	})
}

func TestDoRunsUnderTheLock(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		mu := process(t, s).Mutex("/locks/a")
		var inside context.Context
		err := mu.Do(soon(t), func(ctx context.Context) error {
			inside = ctx
			hold := tier.HoldFrom(ctx, mu)
			need.That(t, "inside Do the context has no hold", hold != nil && hold.Err() == nil)
			wantQueue(t, s, "inside Do", 1)
			return mu.Do(ctx, func(context.Context) error { return nil }) // enters the lock again
		})
		need.WantErr(t, "Do", err, nil)
		need.That(t, "after Do the context has a hold", tier.HoldFrom(inside, mu) == nil)
		wantErr(t, "cause of the context after Do", context.Cause(inside), tier.ErrReleased)
		wantQueue(t, s, "after Do", 0)
	})
}

func TestDoReturnsTheErrorOfItsFunctionUnchanged(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks := process(t, s)
		rw, fails := locks.RWMutex("/locks/rw"), func(context.Context) error { return io.EOF }
		for name, err := range map[string]error{
			"Mutex.Do": locks.Mutex("/locks/a").Do(soon(t), fails), "RWMutex.Do": rw.Do(soon(t), fails), "RWMutex.RDo": rw.RDo(soon(t), fails),
			"Semaphore.Do": locks.Semaphore("/permits", 2).Do(soon(t), 1, fails),
		} {
			need.That(t, fmt.Sprintf("%s: got %v, want io.EOF itself", name, err), err == io.EOF) //nolint:errorlint // it is not wrapped
		}
	})
}

func TestBothSidesOfAnRWMutexAreOneCallAway(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		a, b := process(t, s).RWMutex("/locks/rw"), process(t, s).RWMutex("/locks/rw")
		read := need.Get(a.RAcquire(soon(t)))(t)
		also := need.Get(b.RAcquire(soon(t)))(t)
		need.That(t, "the holds do not read", read.Shared() && also.Shared())
		need.OK(t, read.Release())
		need.OK(t, also.Release())
		write := need.Get(a.Acquire(soon(t)))(t)
		need.That(t, "the hold reads", !write.Shared())
		wantErr(t, "a try to read", need.ErrOf(b.Reader().TryAcquire(soon(t))), tier.ErrLocked)
		need.OK(t, write.Release())
	})
}

func TestDoReleasesHoweverItsFunctionEnds(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		mu := process(t, s).Mutex("/locks/a")
		failed := errors.New("failed")
		err := mu.Do(soon(t), func(ctx context.Context) error {
			s.Expire("/locks/a", 0)
			<-ctx.Done()
			return failed
		})
		wantErr(t, "Do", err, failed, tier.ErrLost)
		func() {
			defer func() { need.Equal(t, "recovered", recover(), "oops") }()
			_ = mu.Do(soon(t), func(context.Context) error { panic("oops") })
		}()
		wantQueue(t, s, "after a panic", 0)
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errChangedMind)
		if err := mu.Do(ctx, func(context.Context) error {
			t.Error("the function was called without the lock")
			return nil
		}); !errors.Is(err, errChangedMind) {
			t.Errorf("Do: got %v, want the error of Acquire", err)
		}
		release(t, acquire(t, mu))
	})
}

func TestTryAcquireSendsNothingWhileTheGateIsTaken(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		owner, mu := process(t, s).Mutex("/locks/a"), process(t, s).Mutex("/locks/a")
		try := func(when string) {
			t.Helper()
			var m meter
			s.Script(m.note)
			wantErr(t, "TryAcquire while "+when, errOf(mu.TryAcquire(soon(t))), tier.ErrLocked)
			synctest.Wait()
			need.Empty(t, "sent by TryAcquire while "+when, m.take())
			s.Script(nil)
		}
		hold := acquire(t, owner)
		waiter := start(soon(t), mu).blocked(t)
		try("a goroutine of this process waits")
		release(t, hold)
		hold = waiter.granted(t)
		try("a goroutine of this process has the lock")
		release(t, hold)
	})
}

// The function hanging starts a TryAcquire. Its answer arrives when the channel answer is closed.
func hanging(ctx context.Context, t *testing.T, s *memory.Server, mu *tier.Mutex) (a *call[*tier.Hold], answer chan struct{}) {
	t.Helper()
	answer = make(chan struct{})
	s.Script(func(_ string, c queue.Command) memory.Fault {
		if c.Op == queue.Try {
			<-answer
		}
		return memory.Fault{}
	})
	a = begin(func() (*tier.Hold, error) { return mu.TryAcquire(ctx) })
	return a.blocked(t), answer
}

// A goroutine that waits behind a TryAcquire gets its turn, both if the TryAcquire succeeds and if it fails.
func TestWaiterBehindTryAcquireIsServed(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		other, mu := process(t, s).Mutex("/locks/a"), process(t, s).Mutex("/locks/a")
		for _, locked := range []bool{true, false} {
			var elsewhere *tier.Hold
			if locked {
				elsewhere = acquire(t, other)
			}
			try, answer := hanging(soon(t), t, s, mu)
			waiter := start(soon(t), mu).blocked(t)
			close(answer)
			s.Script(nil)
			waiter.blocked(t)
			if <-try.done; locked {
				wantErr(t, "TryAcquire of a taken lock", try.err, tier.ErrLocked)
				release(t, elsewhere)
			} else {
				release(t, try.granted(t))
			}
			release(t, waiter.granted(t))
		}
	})
}

// A hold from a TryAcquire has the same budget as any other hold. The budget starts with the hold, even if another process began to wait
// before that.
func TestBudgetRunsWhileTheHolderOfATryAcquireIsWaitedFor(t *testing.T) { // I11
	metered(t, func(t *testing.T, s *memory.Server, _ *meter, process func(...tier.Option) *tier.Mutex) {
		mu, other := process(), process()
		try, answer := hanging(soon(t), t, s, mu)
		waiter := start(soon(t), mu).blocked(t)
		close(answer)
		hold := try.granted(t)
		next := start(soon(t), other).blocked(t)
		time.Sleep(time.Second) // much longer than the budget
		release(t, hold)
		waiter.blocked(t)
		release(t, next.granted(t))
		release(t, waiter.granted(t))
	})
}

func TestNameIsAReadablePath(t *testing.T) {
	for _, c := range []struct{ dir, name, want string }{
		{"/jobs", "daily", "/jobs/daily"},
		{"/jobs/", "pkg.(*Job).Run-fm", "/jobs/pkg.%28%2AJob%29.Run-fm"},
		{"/jobs", "daily report/größe", "/jobs/daily%20report%2Fgröße"},
		{"/jobs", "日本語: 100%", "/jobs/日本語:%20100%25"},
		{"/jobs", "🔑\x00\xff\ufffd", "/jobs/%F0%9F%94%91%00%FF%EF%BF%BD"},
		{"/jobs", "..", "/jobs/%2E%2E"},
		{"/jobs", "...", "/jobs/%2E%2E%2E"},
		{"/jobs", "zookeeper", "/jobs/zookeeper"},
		{"", "zookeeper", "/%7Aookeeper"},
		{"/", "azAZ09", "/azAZ09"},
		{"/jobs", "lock-1", "/jobs/lock-1"},
		{"/jobs", "lock-0000000001", "/jobs/lock-000000000%31"},
		{"{jobs}", "a:tierlock:queue", "{jobs}/a:tierlock:queu%65"},
	} {
		need.Equal(t, fmt.Sprintf("Name(%q, %q)", c.dir, c.name), tier.Name(c.dir, c.name), c.want)
	}
}

func TestEveryNameIsALockThatUnescapesToIt(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 0))
	names := []string{
		".", "..", "zookeeper", "lock-0000000001", "lock-000000000%31", ":tierlock:a", "%", "%2F", "/", "/zookeeper", "\u0600\u06dd",
	}
	for range 2000 {
		text := make([]rune, 1+random.IntN(75)) // characters of all lengths, and some numbers that are no characters
		for i := range text {
			text[i] = random.Int32N(1 << (7 + random.IntN(15)))
		}
		bytes := make([]byte, 1+random.IntN(300))
		for i := range bytes {
			bytes[i] = byte(random.Int32())
		}
		names = append(names, string(text), string(bytes))
	}
	for _, name := range names {
		for _, dir := range []string{"", "/", "/jobs", "/jobs/"} {
			p := tier.Name(dir, name)
			if err := zklock.ValidatePath(p); err != nil {
				t.Fatalf("Name(%q, %q): %v", dir, name, err)
			}
			if !strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/") {
				t.Fatalf("Name(%q, %q): %q is not below", dir, name, p)
			}
			if got, err := url.PathUnescape(path.Base(p)); err != nil || got != name {
				t.Fatalf("Name(%q, %q) unescapes to %q, %v", dir, name, got, err)
			}
		}
	}
}

// A path may be below the path of another lock. The lock there is then not mistaken for a contender of the lock above.
func TestNoNameIsAContenderOfTheLockAbove(t *testing.T) {
	var names []string
	for _, mark := range []string{"lock-", "__WRIT__", "__READ__", "__lock__", "__rlock__"} {
		for _, number := range []string{"0000000000", "2147483647", "9999999999", "-000000001", "-2147483648"} {
			names = append(names, mark+number, "_c_00000000-0000-8000-8000-000000000000-"+mark+number, "x"+mark+number)
		}
	}
	far(t, func(t *testing.T, _ *zktest.Server, process func(...tier.Option) *tier.Mutex) {
		locks, other := tier.RegistryOf(tier.RWSibling(process())), tier.RegistryOf(tier.RWSibling(process()))
		for _, name := range names {
			below := acquire(t, locks.Mutex(tier.Name("/jobs", name)))
			for _, above := range []*tier.Mutex{other.Mutex("/jobs"), other.RWMutex("/jobs").Reader(), other.RWMutex("/jobs").Writer()} {
				hold, err := above.TryAcquire(soon(t))
				if err != nil {
					t.Fatalf("%s blocks the lock above: %v", name, err)
				}
				release(t, hold)
			}
			release(t, below)
			need.Equal(t, "a name unescaped", need.Get(url.PathUnescape(path.Base(tier.Name("/jobs", name))))(t), name)
		}
	})
}
