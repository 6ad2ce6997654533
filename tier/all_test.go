package tier_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
)

// abc returns three locks of the registry r.
func abc(r *tier.Registry) (a, b, c *tier.Mutex) {
	return r.Mutex("/locks/a"), r.Mutex("/locks/b"), r.Mutex("/locks/c")
}

func acquireAll(t *testing.T, ctx context.Context, mutexes ...*tier.Mutex) *tier.Bundle {
	t.Helper()
	return need.Get(tier.AcquireAll(ctx, mutexes...))(t)
}

func gather(ctx context.Context, mutexes ...*tier.Mutex) *call[*tier.Bundle] {
	return begin(func() (*tier.Bundle, error) { return tier.AcquireAll(ctx, mutexes...) })
}

// wantQueues fails the test unless the queues of the locks a, b and c have these numbers of contenders.
func wantQueues(t *testing.T, s *memory.Server, when string, want ...int) {
	t.Helper()
	synctest.Wait()
	var got []int
	for _, name := range []string{"a", "b", "c"} {
		got = append(got, len(s.Queue("/locks/"+name)))
	}
	need.List(t, when+": queues of a, b, c", got, want...)
}

func TestAcquireAllTakesLocksInTheOrderOfTheirPaths(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		a, b, c := abc(process(t, s))
		for _, all := range [][]*tier.Mutex{{a, b, c}, {a, c, b}, {b, a, c}, {b, c, a}, {c, a, b}, {c, b, a}} {
			_, other, _ := abc(process(t, s))
			hold := acquire(t, other)
			g := gather(soon(t), all...)
			wantQueues(t, s, "while b is held elsewhere", 1, 2, 0)
			release(t, hold)
			<-g.done
			need.OK(t, g.err)
			wantQueues(t, s, "with all", 1, 1, 1)
			for i, h := range g.got.Holds() {
				need.Equal(t, "the path of a hold", h.Path(), all[i].Path())
			}
			release(t, g.got)
			wantQueues(t, s, "after the release", 0, 0, 0)
		}
	})
}

func TestAcquireAllHoldsNothingAfterAnError(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks := process(t, s)
		a, b, c := abc(locks)
		_, _, other := abc(process(t, s))
		hold := acquire(t, other)
		ctx := need.Within(t, 2*time.Second)
		_, err := tier.AcquireAll(ctx, c, a, b)
		var wait *tier.WaitError
		need.That(t, fmt.Sprintf("got %v, want a WaitError about %s", err, c.Path()),
			errors.As(err, &wait) && wait.Path == c.Path() && wait.Ahead.Token == hold.Token() && errors.Is(err, context.DeadlineExceeded))
		wantQueues(t, s, "after the error", 0, 0, 1)

		impatient := locks.Mutex("/locks/c", tier.WithMaxWait(time.Second))
		wantErr(t, "with a limit of one lock", errOf(tier.AcquireAll(t.Context(), impatient, a)), tier.ErrWaitLimit)
		wantQueues(t, s, "after the limit", 0, 0, 1)
		release(t, hold)
		wantErr(t, "with a context that has ended", errOf(tier.AcquireAll(ctx, a, b)), context.DeadlineExceeded)
		wantQueues(t, s, "with a context that has ended", 0, 0, 0)
	})
}

// AcquireAll refuses invalid arguments before it sends any command.
func TestAcquireAllRefusesBeforeItAcquires(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks := process(t, s)
		a, b, _ := abc(locks)
		again, _, _ := abc(process(t, s))
		var m meter
		s.Script(m.note)
		for what, c := range map[string]struct {
			mutexes []*tier.Mutex
			want    string
		}{
			"nil":                              {[]*tier.Mutex{a, nil, b}, "mutex 2 of 3 is nil"},
			"a path that cannot be a lock":     {[]*tier.Mutex{a, locks.Mutex("")}, "empty"},
			"an option that is wrong":          {[]*tier.Mutex{a, locks.Mutex("/z", tier.WithLinger(-1))}, "linger -1ns"},
			"the same path in two registries":  {[]*tier.Mutex{a, b, again}, "two different locks at /locks/a"},
			"a mutex and one to read":          {[]*tier.Mutex{b, locks.RWMutex("/locks/b").Reader()}, "two different locks at /locks/b"},
			"the same, with others in between": {[]*tier.Mutex{again, b, a, a}, "two different locks at /locks/a"},
		} {
			need.Has(t, what, fmt.Sprint(errOf(tier.AcquireAll(t.Context(), c.mutexes...))), c.want)
		}
		synctest.Wait()
		need.Empty(t, "sent", m.take())
	})
}

func TestAcquireAllEntersAgain(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks := process(t, s)
		a, b, c := abc(locks)
		outer := acquire(t, a)
		bundle := acquireAll(t, outer.Context(soon(t)), b, locks.Mutex("/locks/b"), a, b)
		holds := bundle.Holds()
		need.That(t, "a lock given twice is not reentrant", holds[0].Token() == holds[1].Token() && holds[0].Token() == holds[3].Token())
		need.Equal(t, "the token of the lock that was already held", holds[2].Token(), outer.Token())
		wantQueues(t, s, "with holds of a and b", 1, 1, 0)
		release(t, acquireAll(t, bundle.Context(soon(t)), c, b, a))
		release(t, bundle)
		wantQueues(t, s, "with the outer hold", 1, 0, 0)
		release(t, outer)
	})
}

// AcquireAll acquires the writer's side first, because a holder of the reader's side cannot become a writer.
func TestAcquireAllTakesBothSidesOfALock(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		rw := process(t, s).RWMutex("/locks/b")
		other := process(t, s).RWMutex("/locks/b").Reader()
		bundle := acquireAll(t, soon(t), rw.Reader(), rw.Writer(), rw.Reader())
		waiting := start(soon(t), other).blocked(t)
		release(t, bundle)
		release(t, waiting.granted(t))

		reading := acquire(t, rw.Reader())
		wantErr(t, "a reader asks to write", errOf(tier.AcquireAll(reading.Context(soon(t)), rw.Writer())), tier.ErrCannotUpgrade)
		release(t, reading)
	})
}

func TestABundleReleasesInReverseAndOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		a, b, c := abc(process(t, s))
		bundle := acquireAll(t, soon(t), c, a, b)
		work := bundle.Context(t.Context())
		need.That(t, "another context", work == bundle.Context(t.Context()))
		wantErr(t, "Err", bundle.Err(), nil)
		paths := make(chan string, 9) // the paths of removed contenders, in order
		s.Script(func(_ string, c queue.Command) memory.Fault {
			if c.Op == queue.Leave {
				paths <- c.Path
			}
			return memory.Fault{}
		})
		release(t, bundle)
		var order []string
		for range len(paths) {
			order = append(order, <-paths)
		}
		need.List(t, "released", order, "/locks/c", "/locks/b", "/locks/a")
		wantErr(t, "cause of the context", context.Cause(work), tier.ErrReleased)
		next := acquire(t, b)
		wantErr(t, "second Release", bundle.Release(), tier.ErrReleased)
		wantErr(t, "Err", bundle.Err(), tier.ErrReleased)
		wantQueues(t, s, "with the next hold of b", 0, 1, 0)
		release(t, next)
	})
}

// If one hold of a bundle was released on its own, the bundle reports that it was released. Its Release still releases the other holds.
func TestABundleOfWhichOneHoldWasReleased(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		a, b, c := abc(process(t, s))
		bundle := acquireAll(t, soon(t), c, a, b)
		work := bundle.Context(t.Context())
		need.That(t, "the context of the bundle does not carry the hold of a", tier.HoldFrom(work, a) == bundle.Holds()[1])
		release(t, bundle.Holds()[1])
		wantQueues(t, s, "without a", 0, 1, 1)
		wantErr(t, "Err", bundle.Err(), tier.ErrReleased)
		need.WantMention(t, bundle.Err(), a.Path())
		wantErr(t, "cause of the context", context.Cause(work), tier.ErrReleased)
		wantErr(t, "Release", bundle.Release(), tier.ErrReleased)
		wantQueues(t, s, "after the release", 0, 0, 0)
	})
}

func TestABundleIsLostWithAnyOfItsLocks(t *testing.T) { // I7
	bubble(t, func(t *testing.T, s *memory.Server) {
		a, b, _ := abc(process(t, s))
		_, _, c := abc(process(t, s)) // a lock of another session
		for _, gone := range []*tier.Mutex{a, b, c} {
			bundle := acquireAll(t, soon(t), a, b, c)
			work := bundle.Context(t.Context())
			s.Remove(gone.Path(), 0)
			<-work.Done()
			wantErr(t, gone.Path()+": cause of the context", context.Cause(work), tier.ErrLost)
			wantErr(t, gone.Path()+": Err", bundle.Err(), tier.ErrLost)
			need.WantMention(t, bundle.Err(), "hold of "+gone.Path())
			wantErr(t, gone.Path()+": Release", bundle.Release(), tier.ErrLost)
			wantQueues(t, s, "after the release", 0, 0, 0)
		}
	})
}

func TestALockThatIsLostWhileOthersAreWaitedForEndsTheWait(t *testing.T) { // I7
	bubble(t, func(t *testing.T, s *memory.Server) {
		a, _, _ := abc(process(t, s))
		_, b, c := abc(process(t, s)) // two locks of another session
		_, _, other := abc(process(t, s))
		hold := acquire(t, other)
		g := gather(soon(t), a, b, c)
		wantQueues(t, s, "while c is waited for", 1, 1, 2)
		s.Expire("/locks/a", 0)
		<-g.done
		wantErr(t, "AcquireAll", g.err, tier.ErrLost)
		need.WantMention(t, g.err, "hold of /locks/a")
		wantQueues(t, s, "after the loss", 0, 0, 1)
		release(t, hold)
	})
}

// A lock that AcquireAll already has may be lost while it acquires the last one. Then AcquireAll returns an error and no lock.
func TestAcquireAllReturnsNoLockThatIsLost(t *testing.T) { // I1
	bubble(t, func(t *testing.T, s *memory.Server) {
		first := process(t, s)
		second := observed(t, s, tier.Observer{Acquired: func(context.Context, tier.AcquiredEvent) { first.Close() }})
		bundle, err := tier.AcquireAll(soon(t), second.Mutex("/locks/b"), first.Mutex("/locks/a"))
		need.That(t, "a bundle with a lost lock", bundle == nil)
		wantErr(t, "AcquireAll", err, tier.ErrLost)
		wantQueues(t, s, "after the loss", 0, 0, 0)
	})
}

func TestABundleOfNothing(t *testing.T) {
	bundle := acquireAll(t, t.Context())
	need.That(t, fmt.Sprintf("holds %v, Err %v", bundle.Holds(), bundle.Err()),
		len(bundle.Holds()) == 0 && bundle.Err() == nil && bundle.Context(t.Context()) == t.Context())
	release(t, bundle)
	wantErr(t, "second Release", bundle.Release(), tier.ErrReleased)
	wantErr(t, "Err after Release", bundle.Err(), tier.ErrReleased)
}

// A program with a long hold may call Context for each request. The hold forgets contexts that have ended, or its memory would grow without
// limit.
func TestFewContextsThatHaveEndedAreKept(t *testing.T) { // I10
	bubble(t, func(t *testing.T, s *memory.Server) {
		a, b, _ := abc(process(t, s))
		bundle := acquireAll(t, soon(t), a, b)
		parent := soon(t)
		lives, most := bundle.Context(parent), 0
		for range 1000 {
			ctx, cancel := context.WithCancel(t.Context())
			bundle.Context(ctx)
			cancel()
			most = max(most, tier.Derived(bundle.Holds()[0]), tier.Derived(bundle.Holds()[1]))
		}
		need.Equal(t, "the most contexts that a hold has kept", most, 16)
		need.That(t, "a context that lives was dropped", bundle.Context(parent) == lives)
		release(t, bundle)
	})
}
