package tier_test

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
)

func wantStats(t *testing.T, when string, locks *tier.Registry, want tier.Stats) {
	t.Helper()
	synctest.Wait()
	got := locks.Stats()
	need.That(t, fmt.Sprintf("%s: losses %v, want %v", when, got.Losses, want.Losses), maps.Equal(got.Losses, want.Losses))
	got.Losses, want.Losses = nil, nil
	need.Equal(t, when+": acquisitions", got.Acquisitions, got.Found+got.HandOvers+got.HandOffs+got.Resumptions)
	want.Acquisitions = got.Acquisitions
	need.That(t, fmt.Sprintf("%s:\ngot  %+v\nwant %+v", when, got, want), reflect.DeepEqual(got, want))
}

func TestStatsCountFromWhereEachLockCame(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks, other := process(t, s), process(t, s)
		mu := locks.Mutex("/locks/a", tier.WithHandOff(time.Hour), tier.WithLinger(time.Minute))
		wantStats(t, "at first", locks, tier.Stats{})

		hold := acquire(t, mu) // counted as found
		waiting := start(soon(t), mu).blocked(t)
		time.Sleep(2 * time.Second)
		wantStats(t, "held", locks, tier.Stats{Holds: 1, Waiters: 1, Found: 1, WaitTime: 2 * time.Second, HoldTime: 2 * time.Second})
		release(t, hold)
		hold = waiting.granted(t) // counted as handed off
		time.Sleep(time.Second)
		release(t, hold)
		want := tier.Stats{Lingering: 1, Found: 1, HandOffs: 1, WaitTime: 2 * time.Second, HoldTime: 3 * time.Second}
		time.Sleep(time.Second)
		wantStats(t, "lingering", locks, want)

		hold = acquire(t, mu) // counted as resumed
		inner := start(hold.Context(t.Context()), mu).granted(t)
		release(t, inner) // to enter again does not count as an acquisition
		release(t, hold)
		want.Resumptions++
		wantStats(t, "lingering again", locks, want)

		theirs := acquire(t, other.Mutex("/locks/a"))
		waiting = start(soon(t), mu).blocked(t)
		time.Sleep(time.Second)
		release(t, theirs)
		release(t, waiting.granted(t)) // counted as a transfer
		want.HandOvers++
		want.WaitTime += time.Second
		wantStats(t, "handed over", locks, want)

		time.Sleep(time.Hour) // the lock does not linger any more, and its state is gone
		want.Lingering = 0
		wantStats(t, "after all", locks, want)
	})
}

func TestStatsCountWaitsInVain(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks := process(t, s)
		mu := locks.Mutex("/locks/a")
		hold := acquire(t, mu)
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() { mu.Acquire(need.Within(t, time.Duration(i+1)*time.Second)) })
		}
		all.Wait()
		need.That(t, "taken twice", errOf(mu.TryAcquire(t.Context())) != nil)
		wantStats(t, "after the waits", locks, tier.Stats{Holds: 1, Found: 1, WaitTime: 55 * time.Second, HoldTime: 10 * time.Second})
		waiting := start(soon(t), mu).blocked(t)
		locks.Close()
		<-waiting.done
		hold.Release()
		wantStats(t, "after Close", locks, tier.Stats{
			Found: 1, WaitTime: 55 * time.Second, HoldTime: 10 * time.Second,
			Losses: map[tier.LossCause]int64{tier.LossByClose: 1},
		})
	})
}

type meanwhileKey struct{}

// meanwhile returns a context for an Acquire in a registry from the function interrupted. When that Acquire has waited for a second, f is
// called.
func meanwhile(ctx context.Context, f func()) context.Context {
	return context.WithValue(ctx, meanwhileKey{}, f)
}

func interrupted(t *testing.T, s *memory.Server) *tier.Registry {
	t.Helper()
	return observed(t, s, tier.Observer{Waiting: func(ctx context.Context, _ tier.Wait) {
		if f, ok := ctx.Value(meanwhileKey{}).(func()); ok {
			f()
		}
	}}, tier.WithHandOff(time.Hour))
}

// A waiter may give up at the moment in which it becomes the next owner. Such a turn does not count as an acquisition, and adds
// nothing to the sums of hold times and wait times.
func TestStatsOfATurnThatNobodyTakes(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks := interrupted(t, s)
		mu := locks.Mutex("/locks/a")
		const rounds = 50
		turns := 0
		for range rounds {
			hold := acquire(t, mu)
			turns++
			ctx, cancel := context.WithCancel(t.Context())
			if hold, err := mu.Acquire(meanwhile(ctx, func() {
				release(t, hold)
				cancel()
			})); err == nil {
				turns++
				release(t, hold)
			}
			cancel()
		}
		synctest.Wait()
		need.That(t, "no waiter gave up a turn", turns != 2*rounds)
		got := locks.Stats()
		if got.Acquisitions != int64(turns) || got.HoldTime != rounds*time.Second || got.WaitTime != rounds*time.Second ||
			got.Holds != 0 || got.Waiters != 0 {
			t.Errorf("%d turns: %+v", turns, got)
		}
	})
}

func TestStatsTellHowLocksWereLost(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks := process(t, s)
		mu := locks.Mutex("/locks/a")
		lose := func(how func()) {
			hold := acquire(t, mu)
			time.Sleep(sessionTimeout / 6) // by now the contender is watched
			how()
			<-hold.Lost()
			hold.Release()
			time.Sleep(time.Second) // until there is a new session
		}
		lose(func() { s.Expire("/locks/a", 0) })
		lose(func() { s.Remove("/locks/a", 0) })
		var thaw func()
		lose(func() { thaw = s.Freeze() })
		thaw()
		wantStats(t, "after three losses", locks, tier.Stats{
			Found: 3, HoldTime: locks.Stats().HoldTime,
			Losses: map[tier.LossCause]int64{tier.LossOfSession: 1, tier.LossByDeletion: 1, tier.LossOfLease: 1},
		})
	})
}

// A loss counts when it happens and not when the owner releases, because an owner that hangs may never release.
func TestLossCountsWhenItHappens(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks := process(t, s)
		hold := acquire(t, locks.Mutex("/locks/a"))
		readers := times(3, func() *tier.Hold { return acquire(t, locks.RWMutex("/locks/rw").Reader()) })
		losses := func(when string, cause tier.LossCause, want int64) {
			t.Helper()
			for range 2 {
				need.Equal(t, when+": losses", locks.Stats().Losses[cause], want)
			}
		}
		s.Remove("/locks/rw", 0)
		<-readers[0].Lost()
		for _, left := range readers {
			losses("with readers that go", tier.LossByDeletion, 3)
			wantErr(t, "Release of a reader", left.Release(), tier.ErrLost)
		}
		losses("with none that reads", tier.LossByDeletion, 3)
		wantErr(t, "Shutdown", locks.Shutdown(need.Within(t, time.Second)), context.DeadlineExceeded)
		losses("while the owner hangs", tier.LossByClose, 1)
		wantErr(t, "Release", hold.Release(), tier.ErrLost)
		losses("after its release", tier.LossByClose, 1)
	})
}

// If readers share a lost lock, the first release may be what finds the loss. The loss still counts once for each reader.
func TestLossOfReadersThatTheirReleaseFindsCountsOnceForEach(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks := process(t, s)
		readers := times(3, func() *tier.Hold { return acquire(t, locks.RWMutex("/locks/rw").Reader()) })
		s.Remove("/locks/rw", 0)
		<-readers[0].Lost()
		for _, left := range readers {
			wantErr(t, "Release of a reader", left.Release(), tier.ErrLost)
		}
		need.Equal(t, "losses", locks.Stats().Losses[tier.LossByDeletion], 3)
	})
}

// Only commands that remove or requeue a contender count. Hand-offs and losses do not count.
func TestStatsTellHowLongTheStoreTakesToTakeALockBack(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks := process(t, s)
		want := func(when string, number int64, sum time.Duration) {
			t.Helper()
			got := locks.Stats()
			need.Equal(t, when+": the number of releases, and their total time", [2]any{got.GiveUps, got.GiveUpTime}, [2]any{number, sum})
		}
		slowly := func(hold *tier.Hold, answered time.Duration) {
			thaw := s.Freeze()
			time.AfterFunc(answered, thaw)
			release(t, hold)
		}
		mu := locks.Mutex("/locks/a", tier.WithHandOff(time.Hour))
		hold := acquire(t, mu)
		waiting := start(soon(t), mu).blocked(t)
		release(t, hold)
		want("handed off", 0, 0)
		slowly(waiting.granted(t), 300*time.Millisecond)
		want("deleted", 1, 300*time.Millisecond)

		strict := locks.Mutex("/locks/b", tier.WithStrictOrder())
		hold = acquire(t, strict)
		waiting = start(soon(t), strict).blocked(t)
		slowly(hold, 200*time.Millisecond)
		want("requeued", 2, 500*time.Millisecond)
		hold = waiting.granted(t)
		time.Sleep(sessionTimeout / 6) // by now the contender is watched
		s.Remove("/locks/b", 0)
		<-hold.Lost()
		hold.Release()
		want("lost", 2, 500*time.Millisecond)
	})
}

func TestHoldsAndContendersSaySinceWhen(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks, other := process(t, s), process(t, s)
		a, b := locks.Mutex("/locks/a", tier.WithHandOff(time.Hour)), locks.Mutex("/locks/b", tier.WithLinger(time.Hour))
		release(t, acquire(t, b))
		hold := acquire(t, a)
		defer take(t, locks.Semaphore("/permits", 1), 1).Release() // permits have no such event
		theirs := acquire(t, other.Mutex("/locks/theirs"))
		wanted := start(soon(t), locks.Mutex("/locks/theirs")).blocked(t)
		queued := time.Now()
		waiting, last := start(soon(t), a).blocked(t), start(soon(t), a).blocked(t)
		time.Sleep(time.Minute)
		release(t, hold)
		hold = waiting.granted(t)
		since := time.Now()
		time.Sleep(time.Second)

		held := locks.HeldLocks()
		if len(held) != 2 || held[0].Path != "/locks/a" || held[0].Token != hold.Token() || !held[0].Since.Equal(since) ||
			held[0].Waiters != 1 || held[0].Lingering || held[1].Path != "/locks/b" || !held[1].Lingering {
			t.Errorf("holds: %+v", held)
		}
		for _, asker := range []*tier.Registry{locks, other} {
			queue := need.Get(asker.Mutex("/locks/a").Contenders(soon(t)))(t)
			need.Len(t, "contenders", queue, 1)
			want := since
			if asker == other {
				want = time.Time{}
			}
			if !queue[0].HeldSince.Equal(want) || !queue[0].Since.Equal(queued) {
				t.Errorf("%+v, want in the queue since %v, held since %v", queue[0], queued, want)
			}
		}
		release(t, hold)
		release(t, last.granted(t))
		release(t, theirs)
		release(t, wanted.granted(t))
		need.Len(t, "holds after all", locks.HeldLocks(), 1)
	})
}

// If several readers hold the lock at the same time, that time is added only once.
func TestHoldTimeOfReaders(t *testing.T) {
	rwMetered(t, func(t *testing.T, _ *memory.Server, _ *meter, process func(...tier.Option) *tier.RWMutex) {
		mu := process()
		holds := times(3, func() *tier.Hold { return acquire(t, mu.Reader()) })
		for i, hold := range holds {
			time.Sleep(time.Second)
			release(t, hold)
			want := time.Duration(i+1) * time.Second
			need.Between(t, "the time held in all", tier.RegistryOf(mu).Stats().HoldTime, want, want+100*time.Millisecond)
		}
	})
}

// A reader may join another reader and give up at the same moment. Its place is then given back as by a release. The other reader has a
// guarded write under way with the contender. Therefore the writer that waits behind the readers needs a new contender.
func TestTurnOfAReaderIsGivenBackAsByARelease(t *testing.T) { // I1
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks := interrupted(t, s)
		mu := locks.RWMutex("/locks/a")
		joined, finish := int64(0), func() {}
		const rounds = 50
		for range rounds {
			hold := acquire(t, mu.Writer())
			ctx, cancel := context.WithCancel(soon(t))
			reader := start(soon(t), mu.Reader()).blocked(t)
			left := start(meanwhile(ctx, func() {
				release(t, hold)
				finish = write(t, reader.granted(t))
				release(t, reader.got)
				cancel()
			}), mu.Reader()).blocked(t)
			writer := start(soon(t), mu.Writer()).blocked(t)
			if <-left.done; left.err == nil {
				joined++
				release(t, left.got)
			}
			need.That(t, "the writer got a contender under which a write is under way", writer.granted(t).Token() != hold.Token())
			finish()
			release(t, writer.got)
			cancel()
		}
		synctest.Wait()
		need.That(t, "no waiter gave up a turn", joined != rounds)
		got := locks.Stats()
		need.That(t, fmt.Sprintf("%d stayed: %+v", joined, got), got.Joins == joined && got.HandOffs == rounds && got.Found == 2*rounds)
	})
}
