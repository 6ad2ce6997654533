package tier_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

const pool = "/limits/a"

// A claim is a call of Acquire in a goroutine of its own.
type claim struct {
	done    chan struct{}
	permits *tier.Permits
	err     error
}

func ask(ctx context.Context, s *tier.Semaphore, k int) *claim {
	c := &claim{done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.permits, c.err = s.Acquire(ctx, k)
	}()
	return c
}

func (c *claim) pending() bool {
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

// waits returns when nothing moves any more; c must still wait then.
func (c *claim) waits(t *testing.T) *claim {
	t.Helper()
	synctest.Wait()
	if !c.pending() {
		t.Fatalf("Acquire: got %v, %v; want it to wait", c.permits, c.err)
	}
	return c
}

func (c *claim) served(t *testing.T) *tier.Permits {
	t.Helper()
	if <-c.done; c.err != nil {
		t.Fatal(c.err)
	}
	return c.permits
}

// take takes permits that are free, or become free in time.
func take(t *testing.T, s *tier.Semaphore, k int) *tier.Permits {
	t.Helper()
	return ask(soon(t), s, k).served(t)
}

func giveBack(t *testing.T, permits *tier.Permits) {
	t.Helper()
	if err := permits.Release(); err != nil {
		t.Errorf("Release: %v", err)
	}
}

// limited runs f twice, in a bubble each: with processes of a store in memory, and with those of a ZooKeeper, which keeps permits
// in another way. All have the default budget, and n permits of which taken tells how many they have.
func limited(t *testing.T, n int, f func(t *testing.T, process func(...tier.MutexOption) *tier.Semaphore, taken func() int)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		bubble(t, func(t *testing.T, srv *memory.Server) {
			var all []*tier.Registry
			process := func(opts ...tier.MutexOption) *tier.Semaphore {
				locks, _ := dial(t, srv, "")
				all = append(all, locks)
				return locks.Semaphore(pool, n, opts...)
			}
			f(t, process, func() (taken int) {
				for _, c := range srv.Queue(queueOf(pool)) {
					taken += c.Permits
				}
				return taken
			})
			wantNothing(t, srv, all...)
		})
	})
	t.Run("ZooKeeper", func(t *testing.T) {
		zkLimited(t, n, func(t *testing.T, srv *zktest.Server, process func(...tier.MutexOption) *tier.Semaphore) {
			f(t, process, func() int { return len(srv.Children(pool + "/leases")) })
		})
	})
}

// zkLimited runs f in a bubble with a server that keeps the number of permits, and processes with
// the default budget.
func zkLimited(t *testing.T, n int, f func(t *testing.T, srv *zktest.Server, process func(...tier.MutexOption) *tier.Semaphore)) {
	t.Helper()
	zkBubble(t, func(t *testing.T, srv *zktest.Server) {
		atMost(t, srv, n)
		var all []*tier.Registry
		f(t, srv, func(opts ...tier.MutexOption) *tier.Semaphore {
			locks := zkProcess(t, srv)
			all = append(all, locks)
			return locks.Semaphore(pool, n, append([]tier.MutexOption{tier.WithHandOff(20 * time.Millisecond)}, opts...)...)
		})
		zkWantNothing(t, srv, all...)
	})
}

// queueOf is where the server keeps those who have or want permits.
func queueOf(path string) string { return "permits of " + path }

// wantNothing fails unless nobody has or wants permits, and no pool is known any more.
func wantNothing(t *testing.T, s *memory.Server, locks ...*tier.Registry) {
	t.Helper()
	<-time.After(sessionTimeout) // for the reaper
	synctest.Wait()
	if left := s.Queue(queueOf(pool)); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	for i, r := range locks {
		if n := tier.Stakes(r); n != 0 {
			t.Errorf("registry %d knows of %d pools", i, n)
		}
	}
}

// atMost fails the test when more than n permits are taken on the server, or one without the turn.
func atMost(t *testing.T, srv *zktest.Server, n int) { srv.OnChange(wantAtMost(t, n)) }

func wantAtMost(t *testing.T, n int) func(zktest.View, []zktest.Change) {
	return func(v zktest.View, changes []zktest.Change) {
		if taken := len(v.Children(pool + "/leases")); taken > n {
			t.Errorf("%d permits are taken, want %d at most", taken, n)
		}
		var created, turns int
		for _, c := range changes {
			switch {
			case c.Op == "create" && strings.HasPrefix(c.Path, pool+"/leases/"):
				created++
			case c.Op == "delete" && strings.HasPrefix(c.Path, pool+"/locks/"):
				turns++
			}
		}
		if created > 0 && turns != 1 {
			t.Errorf("%d permits were taken for %d turns, want one", created, turns)
		}
	}
}

// zkWantNothing fails unless nobody queues, no permit is taken and no pool is known any more.
func zkWantNothing(t *testing.T, srv *zktest.Server, locks ...*tier.Registry) {
	t.Helper()
	<-time.After(sessionTimeout) // for the reaper
	synctest.Wait()
	for _, below := range []string{"/locks", "/leases"} {
		if left := srv.Children(pool + below); len(left) > 0 {
			t.Errorf("left in %s: %v", below, left)
		}
	}
	for i, r := range locks {
		if n := tier.Stakes(r); n != 0 {
			t.Errorf("registry %d knows of %d pools", i, n)
		}
	}
}

func stored(srv *zktest.Server) string {
	data, _, _ := srv.Get(pool)
	return string(data)
}

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
			all := []error{err, tried}
			if c.k == 1 { // it is the semaphore that is wrong
				_, listed := c.s.Contenders(soon(t))
				all = append(all, listed)
			}
			for _, err := range all {
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
		locks, err := tier.New(second.TierOf(client))
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
			case c.Op == "create":
				came[c.Path] = time.Now()
			case c.Op == "delete":
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

// A lone store gives permits to everybody, and they end when a test says so.
type lone struct {
	second.Tier // has none of the rest
	life        context.Context
	errAt       func() error // what its permits say
}

func (l *lone) Semaphore(string, int, second.Options) (second.Semaphore, error) {
	return loneSemaphore{lone: l}, nil
}
func (l *lone) Err() error            { return nil }
func (l *lone) Now() time.Duration    { return time.Hour }
func (l *lone) Done() <-chan struct{} { return nil }
func (l *lone) Close() error          { return nil }

type loneSemaphore struct {
	second.Semaphore
	lone *lone
}

func (s loneSemaphore) TryAcquire(context.Context, int) ([]second.Permit, error) {
	return []second.Permit{lonePermit{lone: s.lone}}, nil
}
func (s loneSemaphore) Release([]second.Permit) error { return nil }
func (s loneSemaphore) Most() int                     { return 1 }
func (s loneSemaphore) Equal(second.Semaphore) bool   { return true }

type lonePermit struct {
	second.Permit
	lone *lone
}

func (p lonePermit) Context() context.Context  { return p.lone.life }
func (p lonePermit) ErrAt(time.Duration) error { return p.lone.errAt() }

// alone runs f with a permit of a lone store, and what ends it.
func alone(t *testing.T, f func(t *testing.T, store *lone, one *tier.Permits, lose context.CancelCauseFunc)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := &lone{errAt: func() error { return nil }}
		var lose context.CancelCauseFunc
		store.life, lose = context.WithCancelCause(context.Background())
		locks, err := tier.New(store)
		if err != nil {
			t.Fatal(err)
		}
		defer locks.Close()
		one, err := locks.Semaphore(pool, 1).TryAcquire(soon(t), 1)
		if err != nil {
			t.Fatal(err)
		}
		f(t, store, one, lose)
		one.Release()
	})
}

// Whoever asks while the permits are given up, and lost right after, hears of no loss.
func TestErrOfPermitsThatAreReleasedMeanwhile(t *testing.T) {
	alone(t, func(t *testing.T, store *lone, one *tier.Permits, _ context.CancelCauseFunc) {
		store.errAt = func() error {
			store.errAt = func() error { return tier.ErrLost }
			if err := one.Release(); err != nil {
				t.Errorf("Release: %v", err)
			}
			return tier.ErrLost
		}
		if err := one.Err(); !errors.Is(err, tier.ErrReleased) {
			t.Errorf("Err: %v, want ErrReleased", err)
		}
	})
}

// A lookout is a context that is told right when one that is derived from it has ended.
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

// Where a context says that the permits are lost they say so themselves, and a release at that moment changes no cause.
func TestReleaseOfPermitsAtTheMomentOfTheirLoss(t *testing.T) {
	alone(t, func(t *testing.T, store *lone, one *tier.Permits, lose context.CancelCauseFunc) {
		loss := second.Lost(second.ByDeletion, "deleted")
		store.errAt = func() error { return context.Cause(store.life) }
		released := make(chan error, 2)
		watch := lookout{t.Context(), func() {
			select {
			case <-one.Lost():
			default:
				t.Error("a context has ended, and Lost is open")
			}
			go func() { released <- one.Release() }()
			for range 1000 { // it may wait for a mutex, which no bubble waits for
				runtime.Gosched()
			}
		}}
		works := []context.Context{one.Context(watch), one.Context(watch)}
		lose(loss)
		<-released
		<-released
		for _, work := range works {
			if cause := context.Cause(work); !errors.Is(cause, tier.ErrLost) {
				t.Errorf("the context ended with %v, want the loss", cause)
			}
		}
	})
}

// What was handed on is lost by its new owner alone.
func TestPermitsThatWereHandedOnAreLostByTheirNewOwner(t *testing.T) {
	bubble(t, func(t *testing.T, srv *memory.Server) {
		locks, _ := dial(t, srv, "")
		s := locks.Semaphore(pool, 1)
		one := take(t, s, 1)
		next := ask(soon(t), s, 1).waits(t)
		giveBack(t, one)
		got := next.served(t)
		if got.Token() != one.Token() {
			t.Fatal("not handed on")
		}
		srv.Expire(queueOf(pool), 0)
		<-got.Lost()
		synctest.Wait()
		select {
		case <-one.Lost():
			t.Error("lost by whoever had released it")
		default:
		}
		if err := got.Release(); !errors.Is(err, tier.ErrLost) {
			t.Errorf("Release: %v, want ErrLost", err)
		}
	})
}
