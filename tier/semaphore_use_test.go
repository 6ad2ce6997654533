package tier_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zktest"
)

// With crowds in four processes, permits are in use for most of the time, in about equal shares. A permit stays in a process
// for three budgets at most for each that queues, and nobody waits for longer than if all processes had all permits for three
// budgets in turn.
func TestPermitsAreInUseMostOfTheTime(t *testing.T) {
	for _, c := range []struct {
		name   string
		weight int // permits that a turn takes at most
		trip   time.Duration
		want   int // per cent
	}{
		{"single permits", 1, time.Millisecond, 95},
		{"single permits, far away", 1, 3 * time.Millisecond, 90},
		{"up to four at once", 4, time.Millisecond, 60},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const budgets = 3 * 20 * time.Millisecond
				u := use(t, c.weight, c.trip)
				sum := 0
				for p, got := range u.taken {
					sum += got
					if got < u.most*c.want/800 {
						t.Errorf("process %d had %d permits of %d, want half its share at least", p, got, u.most)
					}
				}
				if sum*100 < u.most*c.want {
					t.Errorf("%d permits of %d, want %d %%", sum, u.most, c.want)
				}
				if limit := 4*budgets + time.Millisecond + c.trip; u.oldest > limit {
					t.Errorf("a permit stayed in a process for %v while others waited, want %v at most", u.oldest, limit)
				}
				if limit := 4 * (budgets + time.Millisecond + 3*c.trip); c.weight == 1 && u.longest > limit {
					t.Errorf("somebody waited %v, want %v at most", u.longest, limit)
				}
			})
		})
	}
}

// A usage is what became of permits in so much time.
type usage struct {
	taken   [4]int        // per process
	longest time.Duration // wait
	oldest  time.Duration // from when a permit came from the store
	most    int           // if there had been no pause
}

// use has four processes take permits of ten for sections of a millisecond, in fifty goroutines each.
func use(t *testing.T, weight int, trip time.Duration) usage {
	const n, section = 10, time.Millisecond
	srv := zktest.Start(t, zktest.Config{Latency: trip / 2})
	var (
		mu   sync.Mutex // guards u and came
		u    usage
		wg   sync.WaitGroup
		came = make(map[string]time.Time)
		want = wantAtMost(t, n)
	)
	srv.OnChange(func(v zktest.View, changes []zktest.Change) {
		want(v, changes)
		mu.Lock()
		defer mu.Unlock()
		for _, c := range changes {
			switch {
			case !strings.HasPrefix(c.Path, pool+"/leases/"):
			case c.Kind == zktest.Created:
				came[c.Path] = time.Now()
			case c.Kind == zktest.Deleted:
				u.oldest = max(u.oldest, time.Since(came[c.Path]))
			}
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	begun := time.Now()
	for p := range u.taken {
		s := zkProcess(t, srv).Semaphore(pool, n, tier.WithHandOff(20*time.Millisecond))
		for i := range 50 {
			random := rand.New(rand.NewPCG(uint64(p), uint64(i)))
			wg.Go(func() {
				for {
					asked := time.Now()
					permits, err := s.Acquire(ctx, 1+random.IntN(weight))
					if err != nil {
						return
					}
					waited := time.Since(asked)
					time.Sleep(section)
					mu.Lock()
					u.taken[p] += permits.Count()
					u.longest = max(u.longest, waited)
					mu.Unlock()
					giveBack(t, permits)
				}
			})
		}
	}
	wg.Wait()
	mu.Lock()
	defer mu.Unlock()
	u.most = int(n * time.Since(begun) / section)
	return u
}

// Whoever is first in the queue takes what others leave it, however much is free.
func TestProcessTakesItsShareOfWhatIsFree(t *testing.T) {
	zkLimited(t, 10, func(t *testing.T, srv *zktest.Server, process func(...tier.MutexOption) *tier.Semaphore) {
		all := take(t, process(), 10)
		var waiting []*claim
		for range 3 {
			s := process()
			for range 8 {
				waiting = append(waiting, ask(soon(t), s, 1).waits(t))
			}
		}
		giveBack(t, all)
		synctest.Wait()
		var served [3]int
		for i, c := range waiting {
			if !c.pending() {
				served[i/8]++
			}
		}
		// Whoever is first knows of somebody behind it, and the others of those who were ahead when they came.
		if served != [3]int{5, 5, 0} {
			t.Errorf("of ten permits the three processes that queue got %v", served)
		}
		for _, c := range waiting {
			giveBack(t, c.served(t))
		}
	})
}

// What is too little for a large request stays in its process, if that has enough.
func TestPermitsAreKeptForALargeRequest(t *testing.T) {
	zkLimited(t, 4, func(t *testing.T, srv *zktest.Server, process func(...tier.MutexOption) *tier.Semaphore) {
		s := process()
		var held []*tier.Permits
		for range 4 {
			held = append(held, take(t, s, 1))
		}
		big := ask(soon(t), s, 3).waits(t)
		var m zkMeter
		srv.Intercept(m.note)
		for _, one := range held[:3] {
			big.waits(t)
			giveBack(t, one)
			time.Sleep(10 * time.Millisecond)
		}
		giveBack(t, big.served(t))
		giveBack(t, held[3])
		if ops := m.take(); zkWrites(ops) != 3 {
			t.Errorf("requests %v, want one write to leave the queue, and one for each of two releases", ops)
		}
	})
}

// Nobody keeps permits for longer than the budget for a request that waits for what its process has.
func TestPermitsAreNotKeptForever(t *testing.T) {
	limited(t, 4, func(t *testing.T, process func(...tier.MutexOption) *tier.Semaphore, taken func() int) {
		s := process()
		one, three := take(t, s, 1), take(t, s, 3)
		ctx, cancel := context.WithCancel(soon(t))
		big := ask(ctx, s, 4).waits(t)
		small := ask(soon(t), process(), 2).waits(t)
		giveBack(t, three)
		time.Sleep(59 * time.Millisecond)
		if n := taken(); n != 4 {
			t.Errorf("%d permits are taken while the request waits, want 4", n)
		}
		time.Sleep(2 * time.Millisecond)
		if n := taken(); n != 1 {
			t.Errorf("%d permits are taken after three budgets, want 1", n)
		}
		cancel()
		giveBack(t, small.served(t))
		<-big.done
		giveBack(t, one)
	})
}

// What was kept for somebody who leaves is for those behind him, or goes.
func TestPermitsThatWereKeptForOneThatLeaves(t *testing.T) {
	for _, next := range []bool{false, true} {
		limited(t, 4, func(t *testing.T, process func(...tier.MutexOption) *tier.Semaphore, taken func() int) {
			s := process()
			one, three := take(t, s, 1), take(t, s, 3)
			ctx, cancel := context.WithCancel(soon(t))
			big := ask(ctx, s, 4).waits(t)
			var small *claim
			want := 1
			if next {
				small, want = ask(soon(t), s, 2).waits(t), 3
			}
			giveBack(t, three)
			big.waits(t)
			cancel()
			<-big.done
			synctest.Wait()
			if n := taken(); n != want {
				t.Errorf("somebody behind him %v: %d permits are taken, want %d", next, n, want)
			}
			if next {
				giveBack(t, small.served(t))
			}
			giveBack(t, one)
		})
	}
}

// For what is kept only the rest has to come from elsewhere.
func TestRestOfALargeRequestComesFromOthers(t *testing.T) {
	limited(t, 5, func(t *testing.T, process func(...tier.MutexOption) *tier.Semaphore, _ func() int) {
		s := process()
		theirs, one, three := take(t, process(), 1), take(t, s, 1), take(t, s, 3)
		big := ask(soon(t), s, 4).waits(t)
		giveBack(t, three)
		big.waits(t)
		giveBack(t, theirs)
		synctest.Wait()
		if big.pending() {
			t.Error("a request for four waits, with three kept for it and one free")
		}
		giveBack(t, big.served(t))
		giveBack(t, one)
	})
}

// A process that has one of many permits does not keep it for as long as all of them would take.
func TestSinglePermitOfMany(t *testing.T) {
	limited(t, 10, func(t *testing.T, process func(...tier.MutexOption) *tier.Semaphore, _ func() int) {
		nine, a, b := take(t, process(), 9), process(), process()
		ctx, stop := context.WithCancel(soon(t))
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for {
					permits, err := a.Acquire(ctx, 1)
					if err != nil {
						return
					}
					time.Sleep(time.Millisecond)
					giveBack(t, permits)
				}
			})
		}
		for range 5 {
			begun := time.Now()
			one := take(t, b, 1)
			if d := time.Since(begun); d > 2*(2*3*20*time.Millisecond+time.Millisecond) {
				t.Errorf("waited %v, want three budgets for each of two processes and a section, twice if the other one is ahead", d)
			}
			time.Sleep(time.Millisecond)
			giveBack(t, one)
		}
		stop()
		wg.Wait()
		giveBack(t, nine)
	})
}
