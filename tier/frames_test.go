package tier_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/zknode"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// far runs f in a bubble with a ZooKeeper half a round trip away, and a function that starts processes.
func far(t *testing.T, f func(t *testing.T, s *zktest.Server, process func(...tier.Option) *tier.Mutex)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t, zktest.Config{Latency: roundTrip / 2})
		f(t, s, func(opts ...tier.Option) *tier.Mutex {
			client := need.Get(zknode.Dial(t.Context(), "127.0.0.1", zknode.WithDialContext(s.DialContext)))(t)
			locks := tier.New(zknode.Tier(client), opts...)
			t.Cleanup(func() { locks.Close() })
			return locks.Mutex("/locks/a")
		})
	})
}

// traffic counts frames without those that keep the session.
type traffic struct {
	mu       sync.Mutex // guards the fields below
	frames   int
	requests []string
}

func (c *traffic) note(f *zktest.Frame) zktest.Action {
	if f.Op == "ping" || f.Op == "sync" || f.First == "check" {
		return zktest.Pass
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frames++
	if f.Dir == zktest.Request {
		c.requests = append(c.requests, f.Op)
	}
	return zktest.Pass
}

// take returns the counts since the last call.
func (c *traffic) take() (frames int, requests []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	frames, requests = c.frames, c.requests
	c.frames, c.requests = 0, nil
	return frames, requests
}

// wantSent checks what was sent since the last call, in any order.
func (c *traffic) wantSent(t *testing.T, what string, want ...string) {
	t.Helper()
	_, got := c.take()
	need.List(t, "sent for "+what, slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))...)
}

// Looking for waiters costs a read and a watch, which fires whenever the queue changes. Without local waiters there is no look, and a
// short hold sets no watch on its own node.
func TestUncontendedTurnIsACreateAListAndADelete(t *testing.T) {
	far(t, func(t *testing.T, s *zktest.Server, process func(...tier.Option) *tier.Mutex) {
		mu := process()
		release(t, acquire(t, mu)) // creates the parents
		var c traffic
		s.Intercept(c.note)
		hold := acquire(t, mu)
		time.Sleep(s.Sessions()[0].Timeout / 7)
		release(t, hold)
		c.wantSent(t, "a turn", "create", "getChildren2", "delete")
		hold = need.Get(mu.TryAcquire(soon(t)))(t)
		release(t, hold)
		c.wantSent(t, "a turn by TryAcquire", "getChildren2", "create", "getChildren2", "delete")
	})
}

// An acquisition in strict order is one write, whatever the number of goroutines. Frames are bounded, since it does not matter there
// which other processes wait.
func TestFramesOfAStrictTurn(t *testing.T) {
	const next = 0.0001 // to no time at all, so that nothing else happens in the section
	for _, row := range []struct {
		processes int
		want      float64
	}{
		{2, 10},
		{3, 13},
		{8, 15},
	} {
		for section, crowds := range map[float64][]int{next: {4}, 0.5: {4, 50}, 2: {4}} {
			for _, goroutines := range crowds {
				t.Run(fmt.Sprintf("%d×%d, sections of %v", row.processes, goroutines, section), func(t *testing.T) {
					far(t, func(t *testing.T, s *zktest.Server, process func(...tier.Option) *tier.Mutex) {
						mutexes := several(row.processes, process, tier.WithStrictOrder())
						var c traffic
						s.Intercept(c.note)
						first, turns := 5*row.processes, 10*row.processes
						takeTurns(t, mutexes, goroutines, trips(section), first+turns, func(turn int) {
							switch turn {
							case first:
								c.take()
							case first + turns:
								frames, requests := c.take()
								need.AtMost(t, "frames for each turn", float64(frames)/float64(turns), row.want)
								reads := func(op string) bool { return op != "multi" && op != "create" && op != "delete" }
								need.Equal(t, "writes for as many turns", len(slices.DeleteFunc(requests, reads)), turns)
							}
						})
					})
				})
			}
		}
	}
}
