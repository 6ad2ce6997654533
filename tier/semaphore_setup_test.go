package tier_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

// wantNothing fails unless nobody queues, no permit is taken and no pool is known any more.
func wantNothing(t *testing.T, srv *zktest.Server, locks ...*tier.Registry) {
	t.Helper()
	<-time.After(sessionTimeout) // for the reaper
	synctest.Wait()
	for _, below := range []string{"/locks", "/leases"} {
		if left := srv.Children(pool + below); len(left) > 0 {
			t.Errorf("left in %s: %v", below, left)
		}
	}
	for i, r := range locks {
		if n := tier.Pools(r); n != 0 {
			t.Errorf("registry %d knows of %d pools", i, n)
		}
	}
}

func stored(srv *zktest.Server) string {
	data, _, _ := srv.Get(pool)
	return string(data)
}
