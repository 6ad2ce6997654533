package tier_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/tier"
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
			case c.Kind == zktest.Created && strings.HasPrefix(c.Path, pool+"/leases/"):
				created++
			case c.Kind == zktest.Deleted && strings.HasPrefix(c.Path, pool+"/locks/"):
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
