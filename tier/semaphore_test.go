package tier_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

// Turns cost what the documentation says.
func TestRoundTripsOfASemaphore(t *testing.T) {
	const trip = 10 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		srv := zktest.Start(t, zktest.Config{Latency: trip / 2})
		var m zkMeter
		srv.Intercept(m.note)
		s := zkProcess(t, srv).Semaphore(pool, 10)
		giveBack(t, take(t, s, 1)) // makes the parents
		m.take()
		for _, k := range []int{1, 10} {
			begun := time.Now()
			permits := take(t, s, k)
			if d := time.Since(begun); d != 3*trip {
				t.Errorf("Acquire(%d) took %v, want three round trips of %v", k, d, trip)
			}
			if ops := m.take(); zkWrites(ops) != 2 || len(ops) != 5 {
				t.Errorf("Acquire(%d): requests %v, want a turn, two looks, and one write for all permits and the turn", k, ops)
			}
			begun = time.Now()
			giveBack(t, permits)
			if d := time.Since(begun); d != trip {
				t.Errorf("Release of %d took %v, want a round trip of %v", k, d, trip)
			}
			if ops := m.take(); len(ops) != 1 {
				t.Errorf("Release of %d: requests %v, want one", k, ops)
			}
		}
		begun := time.Now()
		all, err := s.TryAcquire(soon(t), 10)
		if d := time.Since(begun); err != nil || d != 5*trip {
			t.Errorf("TryAcquire: %v after %v, want permits after five round trips of %v", err, d, trip)
		}
		other := zkProcess(t, srv).Semaphore(pool, 10)
		begun = time.Now()
		_, err = other.TryAcquire(soon(t), 1)
		if d := time.Since(begun); !errors.Is(err, tier.ErrLocked) || d != trip {
			t.Errorf("TryAcquire with none free: %v after %v, want ErrLocked after a round trip of %v", err, d, trip)
		}
		giveBack(t, all)
	})
}

// Two that want more than half each would wait for each other if they took a part.
func TestHalvesDoNotWaitForEachOther(t *testing.T) {
	limited(t, 6, func(t *testing.T, process func(...tier.MutexOption) *tier.Semaphore, _ func() int) {
		a, b := process(), process()
		var held []*tier.Permits
		for range 3 {
			held = append(held, take(t, a, 1), take(t, b, 1))
		}
		big := []*claim{ask(soon(t), a, 5).waits(t), ask(soon(t), b, 5).waits(t)}
		for _, one := range held {
			giveBack(t, one)
		}
		for _, c := range big {
			giveBack(t, c.served(t))
		}
	})
}

func TestRequestsAreServedInOrderAcrossProcesses(t *testing.T) {
	limited(t, 3, func(t *testing.T, process func(...tier.MutexOption) *tier.Semaphore, _ func() int) {
		strict := tier.WithHandOff(0)
		a, b := process(strict), process(strict)
		all := take(t, a, 3)
		order := []struct {
			s *tier.Semaphore
			k int
		}{{b, 2}, {a, 3}, {b, 2}, {a, 2}, {b, 3}}
		var mu sync.Mutex
		var got []int
		var wg sync.WaitGroup
		for i, want := range order {
			c := ask(soon(t), want.s, want.k).waits(t)
			wg.Go(func() {
				permits := c.served(t)
				mu.Lock()
				got = append(got, i)
				mu.Unlock()
				time.Sleep(time.Millisecond)
				giveBack(t, permits)
			})
		}
		giveBack(t, all)
		wg.Wait()
		// b has one place in the queue, so its second request is behind the second of a.
		if want := []int{0, 1, 2, 3, 4}; !slices.Equal(got, want) {
			t.Errorf("served in the order %v, want %v", got, want)
		}
	})
}

// A goroutine that wants all is served though others come and go without a pause.
func TestSmallRequestsDoNotStarveALargeOne(t *testing.T) {
	for _, where := range []string{"same process", "another process"} {
		t.Run(where, func(t *testing.T) {
			zkLimited(t, 4, func(t *testing.T, srv *zktest.Server, process func(...tier.MutexOption) *tier.Semaphore) {
				a, b := process(), process()
				big := a
				if where == "another process" {
					big = process()
				}
				ctx, stop := context.WithCancel(soon(t))
				var wg sync.WaitGroup
				for i := range 12 {
					wg.Go(func() {
						for ctx.Err() == nil {
							if permits, err := []*tier.Semaphore{a, b}[i%2].Acquire(ctx, 1); err == nil {
								time.Sleep(time.Millisecond)
								giveBack(t, permits)
							}
						}
					})
				}
				time.Sleep(time.Second)
				begun := time.Now()
				permits := take(t, big, 4)
				if d := time.Since(begun); d > 200*time.Millisecond {
					t.Errorf("waited %v for all permits beside others that hold one for 1 ms, want three budgets for each of three processes", d)
				}
				giveBack(t, permits)
				stop()
				wg.Wait()
			})
		})
	}
}

// Within the process permits change hands for nothing while no other process waits.
func TestPermitsAreHandedOnForNothing(t *testing.T) {
	zkLimited(t, 3, func(t *testing.T, srv *zktest.Server, process func(...tier.MutexOption) *tier.Semaphore) {
		s := process()
		var m zkMeter
		all := take(t, s, 3)
		var wg sync.WaitGroup
		var waiting []*claim
		for range 999 {
			waiting = append(waiting, ask(soon(t), s, 1))
		}
		waiting[0].waits(t)
		srv.Intercept(m.note)
		giveBack(t, all)
		for _, c := range waiting {
			wg.Go(func() { giveBack(t, c.served(t)) })
		}
		wg.Wait()
		synctest.Wait()
		// Before it is called back, the courier may have seen a permit go, and looked.
		if ops := m.take(); zkWrites(ops) > 4 || len(ops) > 8 {
			t.Errorf("999 turns: requests %v, want a write to leave the queue and one for each permit that goes", ops)
		}
	})
}

// While another process waits, permits stay here for three budgets from when they came, and one of two
// that came by itself for twice as long. The other one comes in the middle of a section, as at the end of one it would be
// open which of both is seen first; so the last look without it was half a section before.
func TestBudgetOfASemaphore(t *testing.T) {
	const budget, section = 20 * time.Millisecond, time.Millisecond
	zkLimited(t, 2, func(t *testing.T, srv *zktest.Server, process func(...tier.MutexOption) *tier.Semaphore) {
		a, b := process(tier.WithHandOff(budget)), process()
		ctx, stop := context.WithCancel(soon(t))
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for ctx.Err() == nil {
					if permits, err := a.Acquire(ctx, 1); err == nil {
						time.Sleep(section)
						giveBack(t, permits)
					}
				}
			})
		}
		for range 20 {
			time.Sleep(50*section + section/2)
			begun := time.Now()
			permits := take(t, b, 2)
			if d, want := time.Since(begun), 3*budget+6*budget-section/2; d != want {
				t.Errorf("another process waited %v, want three budgets of %v for its place in the queue, twice as much at its head, from the look before it came: %v", d, budget, want)
			}
			giveBack(t, permits)
		}
		stop()
		wg.Wait()
	})
}

// Surplus goes at once, in one write.
func TestPermitsThatNobodyWantsGoInOneWrite(t *testing.T) {
	zkLimited(t, 8, func(t *testing.T, srv *zktest.Server, process func(...tier.MutexOption) *tier.Semaphore) {
		s := process()
		permits := take(t, s, 8)
		waiting := ask(soon(t), s, 2).waits(t)
		var m zkMeter
		srv.Intercept(m.note)
		giveBack(t, permits)
		got := waiting.served(t)
		synctest.Wait()
		if taken := len(srv.Children(pool + "/leases")); taken != 2 {
			t.Errorf("%d permits are taken, want the two that were handed on", taken)
		}
		if ops := m.take(); zkWrites(ops) != 2 {
			t.Errorf("requests %v, want one write for six permits and one for the turn", ops)
		}
		giveBack(t, got)
	})
}

// Those who wait together are served with one write, as far as there is room.
func TestWaitersAreServedTogether(t *testing.T) {
	zkLimited(t, 10, func(t *testing.T, srv *zktest.Server, process func(...tier.MutexOption) *tier.Semaphore) {
		a, b := process(), process()
		all := take(t, a, 10)
		var waiting []*claim
		for range 8 {
			waiting = append(waiting, ask(soon(t), b, 1).waits(t))
		}
		var m zkMeter
		srv.Intercept(m.note)
		giveBack(t, all)
		tokens := make(map[int64]bool)
		for _, c := range waiting {
			permits := c.served(t)
			tokens[permits.Token()] = true
			defer giveBack(t, permits)
		}
		if ops := m.take(); zkWrites(ops) != 2 || len(tokens) != 1 {
			t.Errorf("requests %v and tokens %v, want one write to give up and one to take", ops, tokens)
		}
	})
}

func TestTryAcquireOfASemaphore(t *testing.T) {
	zkLimited(t, 3, func(t *testing.T, srv *zktest.Server, process func(...tier.MutexOption) *tier.Semaphore) {
		a, b := process(), process()
		two, err := a.TryAcquire(soon(t), 2)
		if err != nil {
			t.Fatal(err)
		}
		var m zkMeter
		srv.Intercept(m.note)
		for _, s := range []*tier.Semaphore{a, b} {
			if _, err := s.TryAcquire(soon(t), 2); !errors.Is(err, tier.ErrLocked) ||
				err.Error() != "tier: try "+pool+": fewer than 2 permits free, or somebody waits" {
				t.Errorf("try for two of one that is free: got %v, want ErrLocked", err)
			}
		}
		if ops := m.take(); zkWrites(ops) != 0 {
			t.Errorf("tries in vain: requests %v, want no write", ops)
		}
		waiting := ask(soon(t), b, 3).waits(t)
		for _, s := range []*tier.Semaphore{a, b} {
			if _, err := s.TryAcquire(soon(t), 1); !errors.Is(err, tier.ErrLocked) {
				t.Errorf("try past one who waits: got %v, want ErrLocked", err)
			}
		}
		giveBack(t, two)
		giveBack(t, waiting.served(t))
	})
}

func TestRequestsThatCannotBeServed(t *testing.T) {
	zkBubble(t, func(t *testing.T, srv *zktest.Server) {
		locks := zkProcess(t, srv)
		for _, c := range []struct {
			s    *tier.Semaphore
			k    int
			want string
		}{
			{locks.Semaphore(pool, 3), 0, "0 permits: want at least one"},
			{locks.Semaphore(pool, 3), -1, "-1 permits: want at least one"},
			{locks.Semaphore(pool, 3), 4, "4 permits of 3"},
			{locks.Semaphore(pool, 1e6), 1e6, "ask for fewer"},
			{locks.Semaphore(pool, 0), 1, "0 permits in all: want at least one"},
			{locks.Semaphore("limits", 3), 1, "has to begin with /"},
			{locks.Semaphore(pool, 3, tier.WithHandOff(-1)), 1, "negative"},
		} {
			_, err := c.s.Acquire(soon(t), c.k)
			_, tried := c.s.TryAcquire(soon(t), c.k)
			for _, err := range []error{err, tried} {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%d: got %v, want an error that says %q", c.k, err, c.want)
				}
			}
		}
		zkWantNothing(t, srv, locks)
	})
}

// The number belongs to the path, as far as that is ours to write to.
func TestNumberOfPermitsIsKeptWithThePath(t *testing.T) {
	for _, c := range []struct {
		name, content, after string
		want                 []string // in the error; none: no error
	}{
		{"nothing", "", "tierlock permits=3", nil},
		{"ours", "tierlock permits=3", "tierlock permits=3", nil},
		{"somebody's", "10.0.0.7", "10.0.0.7", nil},
		{"another number", "tierlock permits=10", "tierlock permits=10", []string{"says 10, this process 3", "one number everywhere", "set the content of " + pool + ` to "tierlock permits=3"`}},
		{"kazoo's", "3", "3", []string{"kazoo", "another path"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			zkBubble(t, func(t *testing.T, srv *zktest.Server) {
				conn := outsider(t, "127.0.0.1:2181", srv.DialTimeout)
				for _, path := range []string{"/limits", pool} {
					_, err := conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
					if err == nil {
						_, err = conn.Set(path, []byte(c.content), -1) // so that it is not the first version
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				s := zkProcess(t, srv).Semaphore(pool, 3)
				for _, take := range []func(context.Context, int) (*tier.Permits, error){s.Acquire, s.TryAcquire} {
					permits, err := take(soon(t), 1)
					if len(c.want) == 0 {
						if err != nil {
							t.Fatal(err)
						}
						giveBack(t, permits)
						continue
					}
					if !errors.Is(err, tier.ErrPermits) {
						t.Errorf("got %v, want ErrPermits", err)
					}
					for _, part := range c.want {
						if !strings.Contains(fmt.Sprint(err), part) {
							t.Errorf("got %v, want it to say %s", err, part)
						}
					}
				}
				if got := stored(srv); got != c.after {
					t.Errorf("content of the path: %q, want %q", got, c.after)
				}
				zkWantNothing(t, srv)
			})
		})
	}
}

// Whoever follows the error, once nobody uses the path, has the number changed.
func TestNumberOfPermitsCanBeChanged(t *testing.T) {
	zkBubble(t, func(t *testing.T, srv *zktest.Server) {
		before := zkProcess(t, srv)
		keep := take(t, before.Semaphore(pool, 3), 1)
		after := zkProcess(t, srv).Semaphore(pool, 4)
		_, err := after.Acquire(soon(t), 1)
		advice := regexp.MustCompile(`stop all processes and set the content of (\S+) to "(.*)"`).FindStringSubmatch(fmt.Sprint(err))
		if advice == nil {
			t.Fatalf("got %v, want it to say how to change the number", err)
		}
		giveBack(t, keep)
		before.Close()
		if _, err := outsider(t, "127.0.0.1:2181", srv.DialTimeout).Set(advice[1], []byte(advice[2]), -1); err != nil {
			t.Fatal(err)
		}
		giveBack(t, take(t, after, 4))
	})
}

// Within a process no request is needed to find out, and nothing has to be written at the path.
func TestNumberOfPermitsIsTheSameInAProcess(t *testing.T) {
	bubble(t, func(t *testing.T, srv *memory.Server) {
		locks := process(t, srv)
		permits := take(t, locks.Semaphore(pool, 3), 1)
		var m meter
		srv.Script(m.note)
		_, err := locks.Semaphore(pool, 4).Acquire(soon(t), 1)
		if !errors.Is(err, tier.ErrPermits) || !strings.Contains(err.Error(), "3") || !strings.Contains(err.Error(), "4") {
			t.Errorf("got %v, want ErrPermits with both numbers", err)
		}
		if ops := m.take(); len(ops) > 0 {
			t.Errorf("requests %v, want none", ops)
		}
		giveBack(t, permits)
	})
}

// Whoever may not write the number still gets permits.
func TestNumberThatMayNotBeWritten(t *testing.T) {
	zkBubble(t, func(t *testing.T, srv *zktest.Server) {
		conn := outsider(t, "127.0.0.1:2181", srv.DialTimeout)
		for _, path := range []string{"/limits", pool} {
			if _, err := conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll&^zk.PermWrite)); err != nil {
				t.Fatal(err)
			}
		}
		giveBack(t, take(t, zkProcess(t, srv).Semaphore(pool, 3), 2))
		if got := stored(srv); got != "" {
			t.Errorf("content of the path: %q, want none", got)
		}
		zkWantNothing(t, srv)
	})
}

// The first one that waits leaves, and the next one wants no more than is free.
func TestWhoeverIsBehindOneThatLeavesIsServed(t *testing.T) {
	limited(t, 4, func(t *testing.T, process func(...tier.MutexOption) *tier.Semaphore, _ func() int) {
		a, b := process(), process()
		two := take(t, a, 2)
		ctx, cancel := context.WithCancel(soon(t))
		big := ask(ctx, b, 4).waits(t)
		small := ask(soon(t), b, 2).waits(t)
		cancel()
		begun := time.Now()
		giveBack(t, small.served(t))
		if d := time.Since(begun); d > 0 {
			t.Errorf("waited %v more, want no time at all", d)
		}
		<-big.done
		var wait *tier.WaitError
		if !errors.As(big.err, &wait) || !errors.Is(big.err, context.Canceled) || wait.Path != pool {
			t.Errorf("got %v, want a WaitError for the end of the context", big.err)
		}
		giveBack(t, two)
	})
}

func TestWaitLimitOfASemaphore(t *testing.T) {
	limited(t, 1, func(t *testing.T, process func(...tier.MutexOption) *tier.Semaphore, _ func() int) {
		one := take(t, process(), 1)
		begun := time.Now()
		_, err := process(tier.WithMaxWait(3*time.Second)).Acquire(soon(t), 1)
		if d := time.Since(begun); !errors.Is(err, tier.ErrWaitLimit) || d != 3*time.Second {
			t.Errorf("got %v after %v, want ErrWaitLimit after 3s", err, d)
		}
		giveBack(t, one)
	})
}

// Over a connection made elsewhere there is no lease, and nothing is handed on.
func TestSemaphoreOverAConnectionMadeElsewhere(t *testing.T) {
	zkBubble(t, func(t *testing.T, srv *zktest.Server) {
		atMost(t, srv, 3)
		client, err := zklock.Attach(outsider(t, "127.0.0.1:2181", srv.DialTimeout))
		if err != nil {
			t.Fatal(err)
		}
		locks, err := tier.New(client.Tier())
		if err != nil {
			t.Fatal(err)
		}
		defer locks.Close()
		s := locks.Semaphore(pool, 3)
		two := take(t, s, 2)
		waiting := ask(soon(t), s, 2).waits(t)
		token := two.Token()
		giveBack(t, two)
		got := waiting.served(t)
		if got.Token() <= token {
			t.Errorf("token %d after %d, want permits from the store", got.Token(), token)
		}
		giveBack(t, got)
		zkWantNothing(t, srv, locks)
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
