package tier_test

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/tier"
)

// A jobKey is where the contexts of these tests carry a value.
type jobKey struct{}

// wantEnded fails unless ctx and what is derived from it are over now, because of want.
func wantEnded(t *testing.T, what string, ctx context.Context, want error) {
	t.Helper()
	derived, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, ctx := range []context.Context{ctx, derived} {
		select {
		case <-ctx.Done():
		default:
			t.Errorf("%s: not done", what)
		}
		if ctx.Err() == nil || !errors.Is(context.Cause(ctx), want) {
			t.Errorf("%s: err %v, cause %v; want the cause to be %v", what, ctx.Err(), context.Cause(ctx), want)
		}
	}
}

func TestContextOfAHoldThatIsOverIsDoneWhenItReturns(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		hold := acquire(t, process(t, s).Mutex("/locks/a"))
		parents := map[string]context.Context{"a parent that ends": t.Context(), "one that does not": context.Background()}
		hold.Context(parents["a parent that ends"]) // the hold knows of it
		s.Expire("/locks/a", 0)
		<-hold.Lost()
		for name, parent := range parents {
			wantEnded(t, "lost, "+name, hold.Context(parent), tier.ErrLost)
		}
		_ = hold.Release() // ErrLost
		for name, parent := range parents {
			wantEnded(t, "released, "+name, hold.Context(parent), tier.ErrReleased)
		}
		if n := tier.Derived(hold); n != 0 {
			t.Errorf("the hold knows of %d contexts, want 0", n)
		}
	})
}

func TestCauseOfALostHoldsContextIsTheLossThoughItIsReleasedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		hold := acquire(t, process(t, s).Mutex("/locks/a"))
		ctx := hold.Context(t.Context())
		s.Expire("/locks/a", 0)
		<-hold.Lost()
		_ = hold.Release() // ErrLost
		wantEnded(t, "lost and released", ctx, tier.ErrLost)
	})
}

func TestContextMadeDuringTheReleaseEndsWithIt(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		mu := process(t, s).Mutex("/locks/a")
		outer := acquire(t, mu)
		ctx := outer.Context(t.Context())
		for range 500 {
			hold, err := mu.Acquire(ctx)
			if err != nil {
				t.Fatal(err)
			}
			var both sync.WaitGroup
			var derived context.Context
			var begun atomic.Bool
			both.Go(func() {
				begun.Store(true)
				derived = hold.Context(ctx)
			})
			for !begun.Load() { // side by side, not one after the other
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

// What is derived from a hold's context ends in the same instant, as with the contexts of
// the standard library: before Release returns, and before cancel does.
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
			if ctx.Err() != nil || context.Cause(ctx) != nil {
				t.Errorf("context %d has ended with another one's parent: %v", i, context.Cause(ctx))
			}
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
		hour, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		for _, parent := range []context.Context{context.Background(), t.Context(), hour} {
			first := hold.Context(context.WithValue(parent, jobKey{}, 1))
			second := hold.Context(context.WithValue(parent, jobKey{}, 2))
			none := hold.Context(parent)
			if first.Value(jobKey{}) != 1 || second.Value(jobKey{}) != 2 || none.Value(jobKey{}) != nil {
				t.Errorf("values: got %v, %v, %v; want 1, 2, <nil>", first.Value(jobKey{}), second.Value(jobKey{}), none.Value(jobKey{}))
			}
			got, ok := none.Deadline()
			if want, has := parent.Deadline(); got != want || ok != has {
				t.Errorf("deadline: got %v %t, want %v %t", got, ok, want, has)
			}
		}
		ctx := hold.Context(hour)
		<-ctx.Done()
		wantEnded(t, "deadline", ctx, context.DeadlineExceeded)
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			t.Errorf("err after the deadline: got %v, want %v", ctx.Err(), context.DeadlineExceeded)
		}
	})
}

// A counted context counts the questions for its values.
type counted struct {
	context.Context
	asked *int
}

func (c counted) Value(key any) any {
	*c.asked++
	return c.Context.Value(key)
}

// A function that enters again and again asks its way through as many contexts.
func TestALookUpTakesOneStepForEachNestedHold(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		mu := process(t, s).Mutex("/locks/a")
		asked := 0
		ctx := context.Context(counted{t.Context(), &asked})
		for range 40 {
			hold, err := mu.Acquire(ctx)
			if err != nil {
				t.Fatal(err)
			}
			defer release(t, hold)
			ctx = hold.Context(ctx)
		}
		asked = 0
		if ctx.Value(jobKey{}) != nil || asked != 1 {
			t.Errorf("a missing value was asked for %d times, want 1", asked)
		}
	})
}

// An uncomparable context cannot be a key of a map.
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

// A hold that lasts may serve any number of pieces of work under one context, and of others that end; and a node that
// lasts any number of holds.
func TestContextsKeepNothingInTheirHold(t *testing.T) { // I10
	metered(t, func(t *testing.T, _ *memory.Server, _ *meter, process func(...tier.Option) *tier.Mutex) {
		mu := process(tier.WithLinger(time.Hour))
		hold := acquire(t, mu)
		renew := func() { // with one context for all
			release(t, hold)
			var err error
			if hold, err = mu.Acquire(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		use := func(ctx context.Context) { hold.Context(ctx).Done() } // asked for its end, as work does
		for name, f := range map[string]func(i int){
			"one parent that never ends": func(int) { use(context.Background()) },
			"one parent that ends":       func(int) { use(t.Context()) },
			"parents that have ended": func(int) {
				ctx, cancel := context.WithCancel(t.Context())
				use(ctx)
				cancel()
				synctest.Wait() // many goroutines at a time cost memory, too
			},
			"holds that were released": func(int) {
				renew()
				use(t.Context())
			},
		} {
			const n = 10_000
			each := heapOf(func() {
				for i := range n {
					f(i)
				}
			}) / n
			t.Logf("%s: %d B each", name, each)
			if each > 10 {
				t.Errorf("%s: %d B kept for each context, want none", name, each)
			}
		}
		release(t, hold)
	})
}
