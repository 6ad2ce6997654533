package tier_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock/zktest"
)

const pool = "/limits/a"

// The function ask starts an Acquire in a new goroutine.
func ask(ctx context.Context, s *tier.Semaphore, k int) *call[*tier.Permits] {
	return begin(func() (*tier.Permits, error) { return s.Acquire(ctx, k) })
}

// The function take acquires permits that are free or will soon become free.
func take(t *testing.T, s *tier.Semaphore, k int) *tier.Permits {
	t.Helper()
	return ask(soon(t), s, k).granted(t)
}

// The function limited runs f in a bubble with a semaphore of n permits. The processes have the default budget. At the end, limited
// checks that no contender is left.
func limited(t *testing.T, n int, f func(t *testing.T, srv *memory.Server, process func(...tier.Option) *tier.Semaphore)) {
	t.Helper()
	bubble(t, func(t *testing.T, s *memory.Server) {
		var all []*tier.Registry
		f(t, s, func(opts ...tier.Option) *tier.Semaphore {
			locks, _ := dial(t, s, "")
			all = append(all, locks)
			return locks.Semaphore(pool, n, opts...)
		})
		<-time.After(sessionTimeout) // until the reaper has removed what is left
		synctest.Wait()
		need.Empty(t, "left", s.Queue(queueOf(pool)))
		for i, r := range all {
			need.Equal(t, fmt.Sprintf("pools that registry %d knows of", i), tier.Stakes(r), 0)
		}
	})
}

// queueOf returns the path at which the server keeps the contenders for the permits of a semaphore.
func queueOf(path string) string { return "permits of " + path }

// Permits that were acquired together are lost together. Other permits of the process are not lost.
func TestBrokenPermitsAreLostTogether(t *testing.T) {
	limited(t, 3, func(t *testing.T, _ *memory.Server, process func(...tier.Option) *tier.Semaphore) {
		a, b := process(), process()
		broken, other := take(t, a, 2), take(t, a, 1)
		need.OK(t, b.Break(t.Context(), broken.Token()))
		need.WantErr(t, "Break again", b.Break(t.Context(), broken.Token()), tier.ErrReleased)
		need.That(t, "the holder has not heard of it", closed(broken.Lost()))
		need.WantErr(t, "Err", broken.Err(), tier.ErrLost)
		release(t, take(t, b, 2))
		need.WantErr(t, "Release", broken.Release(), tier.ErrLost)
		release(t, other)
	})
}

// wantTaken waits until the bubble is idle. Then it fails the test unless all processes together hold exactly want permits.
func wantTaken(t *testing.T, s *memory.Server, when string, want int) {
	t.Helper()
	synctest.Wait()
	taken := 0
	for _, c := range s.Queue(queueOf(pool)) {
		taken += c.Permits
	}
	need.Equal(t, when+": permits that are taken", taken, want)
}

// While another process waits, permits stay in a process for three budgets. If a process has acquired only one of two permits when the
// other process comes, that permit stays for twice as long.
func TestBudgetOfASemaphore(t *testing.T) {
	const budget, section = 20 * time.Millisecond, time.Millisecond
	type row struct{ k, budgets int }
	need.Each(t, map[string]row{"all permits": {2, 3}, "one of two": {1, 6}}, func(t *testing.T, c row) {
		limited(t, 2, func(t *testing.T, srv *memory.Server, process func(...tier.Option) *tier.Semaphore) {
			a, b, before := process(tier.WithHandOff(budget)), process(), process()
			one, other := take(t, before, 1), take(t, before, 1)
			mine, theirs := ask(soon(t), a, c.k).blocked(t), ask(soon(t), b, 2).blocked(t)
			release(t, one)
			if synctest.Wait(); c.k == 1 {
				mine.granted(t)
			}
			release(t, other)
			begun := time.Now()
			for permits := mine.granted(t); ; permits = mine.granted(t) {
				mine = ask(soon(t), a, c.k).blocked(t)
				time.Sleep(section)
				release(t, permits)
				if synctest.Wait(); !theirs.pending() {
					break
				}
			}
			need.Equal(t, "the wait of another process", time.Since(begun), time.Duration(c.budgets)*budget)
			release(t, theirs.got)
			release(t, mine.granted(t))
		})
	})
}

// On ZooKeeper, a process that is not the first in the queue does not know how many others wait. It knows only that another process is
// ahead.
func TestBudgetOfASemaphoreRunsWhileAnotherProcessQueues(t *testing.T) { // I11
	const section, most = time.Millisecond, 3*20*time.Millisecond + 2*roundTrip
	for _, behind := range []bool{true, false} {
		far(t, func(t *testing.T, _ *zktest.Server, process func(...tier.Option) *tier.Mutex) {
			sem := func() *tier.Semaphore { return tier.RegistryOf(tier.RWSibling(process())).Semaphore(pool, 1) }
			a, b := sem(), sem()
			permits := take(t, a, 1)
			queue := func(s *tier.Semaphore) *call[*tier.Permits] {
				defer time.Sleep(4 * roundTrip) // until it queues and the other process has seen it
				return ask(soon(t), s, 1).blocked(t)
			}
			var there *call[*tier.Permits]
			if behind {
				there = queue(b)
			}
			here := []*call[*tier.Permits]{queue(a), ask(soon(t), a, 1).blocked(t)}
			if !behind {
				there = queue(b)
			}
			for begun := time.Now(); ; here = append(here[1:], ask(soon(t), a, 1).blocked(t)) {
				time.Sleep(section)
				release(t, permits)
				if synctest.Wait(); here[0].pending() {
					break
				}
				if took := time.Since(begun); took > most {
					t.Fatalf("behind %v: handed off while another process has waited for %v, want %v at most", behind, took, most)
				}
				permits = here[0].granted(t)
			}
			rest := append(here, there)
			if behind {
				rest = append([]*call[*tier.Permits]{there}, here...)
			}
			for _, c := range rest {
				release(t, c.granted(t))
			}
		})
	}
}

// In strict order, each goroutine of a process queues for itself, among the goroutines of other processes.
func TestStrictOrderOfASemaphore(t *testing.T) {
	limited(t, 3, func(t *testing.T, srv *memory.Server, process func(...tier.Option) *tier.Semaphore) {
		all, s := take(t, process(), 3), process(tier.WithStrictOrder())
		waiting := times(3, func() *call[*tier.Permits] { return ask(soon(t), s, 1).blocked(t) })
		var m meter
		srv.Script(m.note)
		release(t, all)
		var holds []*tier.Permits
		for _, w := range waiting {
			holds = append(holds, w.granted(t))
		}
		m.wantWrites(t, "a release, and a place in the queue for each behind the first", 3)
		for _, h := range holds {
			release(t, h)
		}
	})
}

// If several goroutines of a process wait and enough permits are free, one write gets the permits of all of them.
func TestWaitersAreServedTogether(t *testing.T) {
	limited(t, 10, func(t *testing.T, srv *memory.Server, process func(...tier.Option) *tier.Semaphore) {
		a, b := process(), process()
		all := take(t, a, 10)
		var waiting []*call[*tier.Permits]
		for range 8 { // the first goroutine queues alone, for its own permit
			waiting = append(waiting, ask(soon(t), b, 1).blocked(t))
		}
		var m meter
		srv.Script(m.note)
		release(t, all)
		tokens := make(map[int64]bool)
		for _, c := range waiting {
			permits := c.granted(t)
			tokens[permits.Token()] = true
			defer release(t, permits)
		}
		m.wantWrites(t, "one to give up, and one to take for all but the first", 2)
		need.Equal(t, "different tokens", len(tokens), 2)
	})
}

func TestTryAcquireOfASemaphore(t *testing.T) {
	limited(t, 3, func(t *testing.T, srv *memory.Server, process func(...tier.Option) *tier.Semaphore) {
		a, b := process(), process()
		two := need.Get(a.TryAcquire(soon(t), 2))(t)
		refused := func(k int, want string) {
			t.Helper()
			for _, s := range []*tier.Semaphore{a, b} {
				_, err := s.TryAcquire(soon(t), k)
				need.That(t, fmt.Sprintf("try for %d: got %v, want ErrLocked: %s", k, err, want), errors.Is(err, tier.ErrLocked) && err.Error() == want)
			}
		}
		refused(2, "tier: try "+pool+": fewer than 2 permits free, or another call waits for permits")
		waiting := ask(soon(t), b, 3).blocked(t)
		refused(1, "tier: try "+pool+": fewer than 1 permit free, or another call waits for permits")
		release(t, two)
		release(t, waiting.granted(t))
	})
}

func TestRequestsThatCannotBeServed(t *testing.T) {
	bubble(t, func(t *testing.T, srv *memory.Server) {
		locks := process(t, srv)
		for _, c := range []struct {
			s    *tier.Semaphore
			k    int
			want string
		}{
			{locks.Semaphore(pool, 3), 0, "0 permits: want at least one"},
			{locks.Semaphore(pool, 3), -1, "-1 permits: want at least one"},
			{locks.Semaphore(pool, 3), 4, "the call wants 4, but this process gave 3 to Semaphore; ask for fewer"},
			{locks.Semaphore(pool, math.MaxInt), 1<<16 + 1, "ask for fewer"},
			{locks.Semaphore(pool, 0), 1, "0 permits in all: want at least one"},
			{locks.Semaphore("", 3), 1, "empty"},
			{locks.Semaphore(pool, 3, tier.WithHandOff(0)), 1, "want more than 0"},
		} {
			_, err := c.s.Acquire(soon(t), c.k)
			_, tried := c.s.TryAcquire(soon(t), c.k)
			all := []error{err, tried}
			if c.k == 1 { // this row tests the number of permits in the semaphore, and not the number in the request
				_, listed := c.s.Contenders(soon(t))
				all = append(all, listed)
			}
			for _, err := range all {
				need.WantMention(t, err, c.want)
			}
		}
		wantTaken(t, srv, "nothing was served", 0)
	})
}

// If a process states another number of permits than the store has, the number in the store applies. The process logs one warning, even if
// it later states a third number.
func TestProcessFollowsTheNumberOfPermitsInTheStore(t *testing.T) {
	bubble(t, func(t *testing.T, srv *memory.Server) {
		permits := take(t, process(t, srv).Semaphore(pool, 3), 1)
		locks, log := logged(t, srv)
		for _, given := range []int{4, 2, 4} {
			release(t, take(t, locks.Semaphore(pool, given), 2))
			_, err := locks.Semaphore(pool, 4).Acquire(soon(t), 4)
			wantErr(t, "more than there are", err, tier.ErrTooManyPermits)
			need.WantMention(t, err, "4 of 3")
		}
		need.Has(t, "the warning", wantWarnings(t, log, "after all", "the number of permits differs", 1), "given=4", "permits=3", pool)
		release(t, permits)
	})
}

// Two waiters want more permits than the semaphore has. The process learns that from the answer of the store. It refuses these two, and
// serves its other waiters.
func TestWaitersThatWantMoreThanThereAreAreRefused(t *testing.T) {
	bubble(t, func(t *testing.T, srv *memory.Server) {
		three := process(t, srv).Semaphore(pool, 3)
		kept, permits := take(t, three, 1), take(t, three, 2) // one permit stays taken, since otherwise the store would forget the number
		s := process(t, srv).Semaphore(pool, 5)
		answerLate(srv, queue.Enter, time.Second)
		large, small, last := ask(soon(t), s, 5).blocked(t), ask(soon(t), s, 1).blocked(t), ask(soon(t), s, 4).blocked(t)
		srv.Script(nil)
		<-large.done
		wantErr(t, "the first", large.err, tier.ErrTooManyPermits)
		release(t, permits)
		release(t, small.granted(t))
		<-last.done
		wantErr(t, "the last", last.err, tier.ErrTooManyPermits)
		release(t, kept)
		wantTaken(t, srv, "at the end", 0)
	})
}

func TestSetPermits(t *testing.T) {
	bubble(t, func(t *testing.T, srv *memory.Server) {
		a, b := process(t, srv).Semaphore(pool, 2), process(t, srv).Semaphore(pool, 2)
		held := take(t, a, 2)
		waiting := ask(soon(t), b, 2).blocked(t)
		wantErr(t, "more", a.SetPermits(soon(t), 4), nil)
		other := waiting.granted(t)
		wantErr(t, "fewer", b.SetPermits(soon(t), 1), nil)
		wantErr(t, "permits of before", cmp.Or(held.Err(), other.Err()), nil)
		next := ask(soon(t), a, 1).blocked(t)
		release(t, held)
		next.blocked(t)
		release(t, other)
		release(t, next.granted(t))
		need.WantMention(t, a.SetPermits(soon(t), 0), "0 permits in all: want at least one")
		locks := process(t, srv)
		locks.Close()
		wantErr(t, "closed", locks.Semaphore(pool, 2).SetPermits(soon(t), 3), tier.ErrClosed)
	})
}

// The first waiter wants too many permits and gives up. Then the next waiter is served, because enough permits are free for it.
func TestWhoeverIsBehindOneThatLeavesIsServed(t *testing.T) {
	limited(t, 4, func(t *testing.T, srv *memory.Server, process func(...tier.Option) *tier.Semaphore) {
		a, b := process(), process()
		two := take(t, a, 2)
		ctx, cancel := context.WithCancel(soon(t))
		big := ask(ctx, b, 4).blocked(t)
		small := ask(soon(t), b, 2).blocked(t)
		cancel()
		begun := time.Now()
		release(t, small.granted(t))
		need.Equal(t, "the wait after that", time.Since(begun), 0)
		<-big.done
		var wait *tier.WaitError
		wantErr(t, "the first one", big.err, context.Canceled)
		need.That(t, fmt.Sprintf("got %v, want a WaitError", big.err), errors.As(big.err, &wait) && wait.Path == pool)
		release(t, two)
	})
}

func TestWaitLimitOfASemaphore(t *testing.T) {
	limited(t, 1, func(t *testing.T, srv *memory.Server, process func(...tier.Option) *tier.Semaphore) {
		one := take(t, process(), 1)
		begun := time.Now()
		wantErr(t, "Acquire", errOf(process(tier.WithMaxWait(3*time.Second)).Acquire(soon(t), 1)), tier.ErrWaitLimit)
		need.Equal(t, "waited", time.Since(begun), 3*time.Second)
		release(t, one)
	})
}

// Without a lease, the process cannot be sure that it still has its permits. Without a connection, it cannot see what has happened to them.
// In both cases its waiters get new permits from the store.
func TestPermitsThatNobodyIsSureOfAreNotHandedOff(t *testing.T) {
	each(t, map[string]bool{"no lease": false, "no connection": true}, func(t *testing.T, srv *memory.Server, cutOff bool) {
		locks, p := dial(t, srv, "")
		if !cutOff {
			locks = specially(t, srv, &special{unleased: true})
		}
		s := locks.Semaphore(pool, 2, tier.WithHandOff(time.Hour))
		two := take(t, s, 2)
		waiting := ask(soon(t), s, 2).blocked(t)
		heal := func() {}
		if cutOff {
			heal = cut(p)
		}
		release(t, two)
		heal()
		got := waiting.granted(t)
		need.AtLeast(t, "the token of permits from the store", got.Token(), two.Token()+1)
		release(t, got)
	})
}

func TestPermitsWithoutNumberAreHadBesideOthersWhoQueue(t *testing.T) {
	bubble(t, func(t *testing.T, srv *memory.Server) {
		var all sync.WaitGroup
		for range 3 {
			sem := process(t, srv).Semaphore("/permits", math.MaxInt)
			for range 3 {
				all.Go(func() {
					if err := sem.Do(soon(t), 2, func(context.Context) error {
						time.Sleep(10 * time.Millisecond)
						return nil
					}); err != nil {
						t.Error(err)
					}
				})
			}
		}
		all.Wait()
	})
}

// If four processes have many goroutines each, permits are in use most of the time, and each process has about the same share. The longest
// wait of a goroutine is that in which each process in turn has all permits for three budgets.
func TestPermitsAreInUseMostOfTheTime(t *testing.T) {
	const n, processes, section, budgets = 10, 4, time.Millisecond, 3 * 20 * time.Millisecond
	type row struct {
		weight int // the most permits that a turn takes
		trip   time.Duration
		want   int // the time in which permits are in use, in per cent
	}
	need.Each(t, map[string]row{
		"single permits":               {1, time.Millisecond, 95},
		"single permits, far away":     {1, 3 * time.Millisecond, 90},
		"up to four at once":           {4, time.Millisecond, 73},
		"up to four at once, far away": {4, 3 * time.Millisecond, 72},
	}, func(t *testing.T, c row) {
		limited(t, n, func(t *testing.T, srv *memory.Server, process func(...tier.Option) *tier.Semaphore) {
			srv.Script(func(string, queue.Command) memory.Fault { return memory.Fault{Before: c.trip / 2, After: c.trip / 2} })
			ctx := need.Within(t, 2*time.Second)
			var taken [processes]atomic.Int64
			var all sync.WaitGroup
			begun := time.Now()
			for p := range taken {
				s := process()
				for i := range 50 {
					random := rand.New(rand.NewPCG(uint64(p), uint64(i)))
					all.Go(func() {
						for asked := time.Now(); ; asked = time.Now() {
							permits, err := s.Acquire(ctx, 1+random.IntN(c.weight))
							if err != nil {
								return
							}
							waited, limit := time.Since(asked), processes*(budgets+section+3*c.trip)
							need.That(t, fmt.Sprintf("a goroutine waited %v, want %v at most", waited, limit), c.weight != 1 || waited <= limit)
							time.Sleep(section)
							taken[p].Add(int64(permits.Count()))
							release(t, permits)
						}
					})
				}
			}
			all.Wait()
			most := int(n * time.Since(begun) / section)
			sum := 0
			for p := range taken {
				got := int(taken[p].Load())
				sum += got
				need.AtLeast(t, fmt.Sprintf("permits of process %d", p), got, most*c.want/200/processes)
			}
			need.AtLeast(t, "per cent of the permits", sum*100/most, c.want)
			t.Logf("%d %%", sum*100/most)
		})
	})
}

// A process that sees other processes in the queue asks only for its share of all permits, however many permits are free.
func TestProcessAsksForItsShareOfAllPermits(t *testing.T) {
	limited(t, 10, func(t *testing.T, srv *memory.Server, process func(...tier.Option) *tier.Semaphore) {
		all := take(t, process(), 10)
		var waiting []*call[*tier.Permits]
		for range 3 {
			s := process()
			for range 8 { // the first goroutine queues alone, for its own permit
				waiting = append(waiting, ask(soon(t), s, 1).blocked(t))
			}
		}
		var mu sync.Mutex // guards the field below
		var asked []int
		srv.Script(func(_ string, c queue.Command) memory.Fault {
			mu.Lock()
			defer mu.Unlock()
			if c.Op == queue.Enter {
				asked = append(asked, c.Weight)
			}
			return memory.Fault{Before: time.Millisecond}
		})
		release(t, all)
		time.Sleep(time.Millisecond / 2) // the processes have asked, and the answers are still under way
		synctest.Wait()
		mu.Lock()
		t.Log(asked)
		need.List(t, "each of three processes asked for one of ten permits, and then these ask for", asked, 4, 4, 4)
		mu.Unlock()
		for _, c := range waiting {
			release(t, c.granted(t))
		}
	})
}

// A large request may wait while its process has too few permits for it. The process keeps these permits only if enough others can be
// expected.
func TestPermitsAreKeptForALargeRequest(t *testing.T) {
	limited(t, 4, func(t *testing.T, srv *memory.Server, process func(...tier.Option) *tier.Semaphore) {
		s := process()
		held := times(4, func() *tier.Permits { return take(t, s, 1) })
		big := ask(soon(t), s, 3).blocked(t)
		var m meter
		srv.Script(m.note)
		for _, one := range held[:3] {
			big.blocked(t)
			release(t, one)
			time.Sleep(10 * time.Millisecond)
		}
		got := big.granted(t)
		synctest.Wait()
		m.wantWrites(t, "one to leave the queue", 1)
		release(t, got)
		release(t, held[3])
	})
}

// Permits are kept for three budgets from the moment in which they were kept. The timer of permits that were kept earlier does not release
// them.
func TestPermitsAreKeptForTheirOwnTime(t *testing.T) {
	limited(t, 4, func(t *testing.T, srv *memory.Server, process func(...tier.Option) *tier.Semaphore) {
		s := process()
		one := take(t, s, 1)
		keep := func() (leave func()) { // keeps three permits for 60 ms, for a waiter that wants four
			three := take(t, s, 3)
			ctx, cancel := context.WithCancel(soon(t))
			big := ask(ctx, s, 4).blocked(t)
			release(t, three)
			return func() {
				cancel()
				<-big.done
			}
		}
		leave := keep()
		time.Sleep(50 * time.Millisecond)
		leave()
		synctest.Wait() // without this wait, the process may mistake its own former place in the queue for that of another process
		leave = keep()
		time.Sleep(10 * time.Millisecond)
		tier.Expire(s) // acts as a timer that fires although it was stopped
		time.Sleep(49 * time.Millisecond)
		wantTaken(t, srv, "when the time of those before is over", 4)
		time.Sleep(2 * time.Millisecond)
		wantTaken(t, srv, "when their own time is over", 1)
		leave()
		release(t, one)
	})
}

// If permits were kept for a waiter that gives up, the waiters behind it get them, or other processes.
func TestPermitsThatWereKeptForOneThatLeaves(t *testing.T) {
	for _, next := range []bool{false, true} {
		limited(t, 4, func(t *testing.T, srv *memory.Server, process func(...tier.Option) *tier.Semaphore) {
			s := process()
			one, three := take(t, s, 1), take(t, s, 3)
			ctx, cancel := context.WithCancel(soon(t))
			big := ask(ctx, s, 4).blocked(t)
			var small *call[*tier.Permits]
			want := 1
			if next {
				small, want = ask(soon(t), s, 2).blocked(t), 3
			}
			release(t, three)
			big.blocked(t)
			cancel()
			<-big.done
			wantTaken(t, srv, fmt.Sprintf("somebody behind him: %t", next), want)
			if next {
				release(t, small.granted(t))
			}
			release(t, one)
		})
	}
}

// While goroutines of one process hand permits to each other within microseconds, each of them is in the queue of the store for a moment
// only. The process must not send requests for all these moments, because the store could not keep up with them.
func TestFastHandOffsDoNotFloodTheStore(t *testing.T) {
	bubble(t, func(t *testing.T, srv *memory.Server) {
		p := srv.Dial("", sessionTimeout, nil)
		locks := tier.New(p)
		defer locks.Close()
		s := locks.Semaphore(pool, 10)
		p.Delay(time.Millisecond)
		begun := srv.Writes()
		var sections atomic.Int64
		var busy sync.WaitGroup
		end := time.Now().Add(100 * time.Millisecond)
		for range 2 {
			busy.Go(func() {
				for time.Now().Before(end) {
					permits := need.Get(s.Acquire(t.Context(), 1))(t)
					time.Sleep(10 * time.Microsecond)
					sections.Add(1)
					need.OK(t, permits.Release())
				}
			})
		}
		busy.Wait()
		writes := srv.Writes() - begun
		need.AtMost(t, fmt.Sprintf("writes for %d sections, in 100 round trips", sections.Load()), writes, 220)
	})
}

// A resized store reports a number of permits that the test sets.
type resized struct {
	second.Tier
	permits atomic.Int64
}

type resizedSemaphore struct {
	second.Semaphore
	store *resized
}

func (r *resized) Semaphore(path string, permits int, o second.Options) (second.Semaphore, error) {
	sem, err := r.Tier.Semaphore(path, permits, o)
	return resizedSemaphore{sem, r}, err
}

func (s resizedSemaphore) Permits() int { return int(s.store.permits.Load()) }

// Permits were kept for a waiter that is refused, because there are fewer permits now. They go to the waiters behind it, or to other
// processes.
func TestPermitsThatWereKeptForOneThatIsRefused(t *testing.T) {
	for _, next := range []bool{false, true} {
		bubble(t, func(t *testing.T, srv *memory.Server) {
			store := &resized{Tier: srv.Dial("", sessionTimeout, nil)}
			store.permits.Store(6)
			locks := tier.New(store)
			defer locks.Close()
			s := locks.Semaphore(pool, 6)
			one, other, three := take(t, s, 1), take(t, s, 1), take(t, s, 3)
			big := ask(soon(t), s, 5).blocked(t)
			var small *call[*tier.Permits]
			want := 1
			if next {
				small, want = ask(soon(t), s, 2).blocked(t), 3
			}
			release(t, three)
			big.blocked(t)
			store.permits.Store(4)
			release(t, other) // the request then finds out that big wants too many
			wantTaken(t, srv, fmt.Sprintf("a waiter is behind: %t", next), want)
			<-big.done
			wantErr(t, "more than there are", big.err, tier.ErrTooManyPermits)
			if next {
				release(t, small.granted(t))
			}
			time.Sleep(time.Second) // the timer of the kept permits would fire
			release(t, one)
			wantTaken(t, srv, "at the end", 0)
		})
	}
}

// A large request gets the kept permits of its process. Only the other permits that it needs have to come from the store.
func TestRestOfALargeRequestComesFromOthers(t *testing.T) {
	limited(t, 5, func(t *testing.T, srv *memory.Server, process func(...tier.Option) *tier.Semaphore) {
		s := process()
		theirs, one, three := take(t, process(), 1), take(t, s, 1), take(t, s, 3)
		big := ask(soon(t), s, 4).blocked(t)
		release(t, three)
		big.blocked(t)
		release(t, theirs)
		synctest.Wait()
		need.That(t, "a request for four waits, with three kept for it and one free", !big.pending())
		release(t, big.granted(t))
		release(t, one)
	})
}

// If the context of a waiter ends at the moment in which the waiter gets its permits, other waiters get these permits.
func TestContextThatEndsWhenPermitsCome(t *testing.T) {
	limited(t, 2, func(t *testing.T, srv *memory.Server, process func(...tier.Option) *tier.Semaphore) {
		begin := time.Now()
		var thaw func()
		need.OK(t, tier.LeaveServed(soon(t), process(), 2, func() { thaw = srv.Freeze() }))
		need.Equal(t, "the time to leave while the server is silent", time.Since(begin), 0)
		thaw()
	})
}

func TestPermitsAreReleasedOnce(t *testing.T) {
	limited(t, 4, func(t *testing.T, srv *memory.Server, process func(...tier.Option) *tier.Semaphore) {
		s := process()
		two := take(t, s, 2)
		work := two.Context(context.Background())
		need.That(t, fmt.Sprintf("permits: %d at %s, %v, token %d, context %v", two.Count(), two.Path(), two.Err(), two.Token(), work.Err()),
			two.Count() == 2 && two.Path() == pool && two.Err() == nil && two.Token() > 0 && work.Err() == nil)
		release(t, two)
		wantErr(t, "the context", context.Cause(work), tier.ErrReleased)
		wantErr(t, "a later context", context.Cause(two.Context(context.Background())), tier.ErrReleased)
		later := take(t, s, 4)
		wantErr(t, "Release again", two.Release(), tier.ErrReleased)
		wantErr(t, "Err", two.Err(), tier.ErrReleased)
		wantTaken(t, srv, "after a second release", 4)
		need.AtLeast(t, "a later token", later.Token(), two.Token()+1)
		release(t, later)
		need.That(t, "a release is reported as a loss", !closed(two.Lost()))
	})
}

func TestDoWithPermits(t *testing.T) {
	limited(t, 4, func(t *testing.T, srv *memory.Server, process func(...tier.Option) *tier.Semaphore) {
		mine := errors.New("mine")
		var work context.Context
		if err := process().Do(soon(t), 3, func(ctx context.Context) error {
			wantTaken(t, srv, "inside", 3)
			work = ctx
			return mine
		}); !errors.Is(err, mine) || work.Err() == nil {
			t.Errorf("got %v, and the context says %v", err, work.Err())
		}
	})
}

func TestShutdownOfASemaphore(t *testing.T) {
	bubble(t, func(t *testing.T, srv *memory.Server) {
		locks := process(t, srv)
		s := locks.Semaphore(pool, 2)
		two := take(t, s, 2)
		waiting := ask(soon(t), s, 1).blocked(t)
		over := shutdown(soon(t), locks).blocked(t)
		<-waiting.done
		_, late := s.Acquire(soon(t), 1)
		for _, err := range []error{waiting.err, late} {
			wantErr(t, "Acquire", err, tier.ErrClosed)
		}
		release(t, two)
		over.granted(t)
		wantTaken(t, srv, "after the shutdown", 0)
	})
}

func TestPermitsAreLostTogether(t *testing.T) { // I7
	bubble(t, func(t *testing.T, srv *memory.Server) {
		locks, p := dial(t, srv, "")
		three := take(t, locks.Semaphore(pool, 4), 3)
		work := three.Context(context.Background())
		need.That(t, "the permits are valid no more", three.ValidUntil().After(time.Now()))
		p.Cut()
		<-three.Lost()
		<-work.Done()
		if err := context.Cause(work); !errors.Is(err, tier.ErrLost) || !errors.Is(three.Err(), tier.ErrLost) || !three.ValidUntil().IsZero() {
			t.Errorf("lost, but the context says %v, Err %v, and ValidUntil %v", err, three.Err(), three.ValidUntil())
		}
		wantErr(t, "Release", three.Release(), tier.ErrLost)
	})
}

func TestReleaseThatFindsPermitsLostTellsOfIt(t *testing.T) {
	bubble(t, func(t *testing.T, srv *memory.Server) {
		two := take(t, process(t, srv).Semaphore(pool, 3), 2)
		srv.Remove(queueOf(pool), 0)
		wantErr(t, "Release of deleted permits", two.Release(), tier.ErrLost)
		need.That(t, "Lost is open", closedNow(two.Lost()))
	})
}

// If permits are lost after a hand-off, only their new owner learns of the loss.
func TestPermitsThatWereHandedOffAreLostByTheirNewOwner(t *testing.T) {
	bubble(t, func(t *testing.T, srv *memory.Server) {
		locks, _ := dial(t, srv, "")
		s := locks.Semaphore(pool, 1)
		one := take(t, s, 1)
		next := ask(soon(t), s, 1).blocked(t)
		release(t, one)
		got := next.granted(t)
		need.That(t, "not handed off", got.Token() == one.Token())
		srv.Expire(queueOf(pool), 0)
		<-got.Lost()
		need.That(t, "lost by the owner that had released it", !closed(one.Lost()))
		wantErr(t, "Release", got.Release(), tier.ErrLost)
	})
}

// alone(t, f) runs f with a process that has one permit. store.errAt decides what the store answers about that permit.
func alone(t *testing.T, f func(t *testing.T, store *special, one *tier.Permits, lose context.CancelCauseFunc)) {
	t.Helper()
	bubble(t, func(t *testing.T, srv *memory.Server) {
		store := &special{errAt: func() error { return nil }}
		var lose context.CancelCauseFunc
		store.life, lose = context.WithCancelCause(context.Background())
		one := take(t, specially(t, srv, store).Semaphore(pool, 1), 1)
		f(t, store, one, lose)
		one.Release()
	})
}

// If permits are released and then lost while Err is under way, Err returns ErrReleased and not the loss.
func TestErrOfPermitsThatAreReleasedMeanwhile(t *testing.T) {
	alone(t, func(t *testing.T, store *special, one *tier.Permits, _ context.CancelCauseFunc) {
		store.errAt = func() error {
			store.errAt = func() error { return tier.ErrLost }
			wantErr(t, "Release", one.Release(), nil)
			return tier.ErrLost
		}
		wantErr(t, "Err", one.Err(), tier.ErrReleased)
	})
}

// A lookout is a context. It calls the function ended when a context that is derived from it ends.
type lookout struct {
	context.Context
	ended func()
}

func (l lookout) Done() <-chan struct{} { return make(chan struct{}) }

func (l lookout) AfterFunc(func()) (stop func() bool) {
	return func() bool {
		l.ended()
		return true
	}
}

// If the loss ends a context of the permits, Lost is closed by then. A release at the same moment does not change the cause of that
// context.
func TestReleaseOfPermitsAtTheMomentOfTheirLoss(t *testing.T) {
	alone(t, func(t *testing.T, store *special, one *tier.Permits, lose context.CancelCauseFunc) {
		loss := second.Lost(second.ByDeletion, "deleted")
		store.errAt = func() error { return context.Cause(store.life) }
		released := make(chan error, 2)
		watch := lookout{t.Context(), func() {
			need.That(t, "a context has ended, and Lost is open", closedNow(one.Lost()))
			go func() { released <- one.Release() }()
			for range 1000 { // Release may wait for a mutex, and synctest.Wait does not wait for that
				runtime.Gosched()
			}
		}}
		works := []context.Context{one.Context(watch), one.Context(watch)}
		lose(loss)
		<-released
		<-released
		for _, work := range works {
			wantErr(t, "the context ended with", context.Cause(work), tier.ErrLost)
		}
	})
}
