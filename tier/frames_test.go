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

// The function far runs f in a bubble. The ZooKeeper server is half a round trip away. f gets the server, and a function that starts a
// process and returns its mutex.
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

// traffic counts frames, except those that only keep a session alive.
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

// The method take returns the counts since the last call of take.
func (c *traffic) take() (frames int, requests []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	frames, requests = c.frames, c.requests
	c.frames, c.requests = 0, nil
	return frames, requests
}

// wantSent fails the test unless exactly the requests in want, in any order, were sent since the last call.
func (c *traffic) wantSent(t *testing.T, what string, want ...string) {
	t.Helper()
	_, got := c.take()
	need.List(t, "sent for "+what, slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))...)
}

// To look for waiters, a process needs a read and a watch, and the watch fires whenever the queue changes. A process without waiters of its
// own therefore does not look. If its hold is short, it sets no watch on its own node either.
func TestUncontendedTurnIsACreateAListAndADelete(t *testing.T) {
	far(t, func(t *testing.T, s *zktest.Server, process func(...tier.Option) *tier.Mutex) {
		mu := process()
		release(t, acquire(t, mu)) // also creates the parents
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

// In strict order, each acquisition makes one write, for any number of goroutines. The test limits the number of frames only from above,
// because it depends on which other processes wait.
func TestFramesOfAStrictTurn(t *testing.T) {
	const next = 0.0001 // almost no time, so that nothing else happens in the section
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
