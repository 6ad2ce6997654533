package tier_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zktest"
)

// traffic counts frames without those that keep the session.
type traffic struct {
	mu       sync.Mutex // guards the fields below
	frames   int
	requests []string
}

func (c *traffic) note(f *zktest.Frame) zktest.Action {
	if heartbeat(f) {
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

// take returns what there was since the last call.
func (c *traffic) take() (frames int, requests []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	frames, requests = c.frames, c.requests
	c.frames, c.requests = 0, nil
	return frames, requests
}

// A hold that is short enough does without a watch on its own node.
func TestUncontendedTurnIsACreateAListAndADelete(t *testing.T) {
	far(t, func(t *testing.T, s *zktest.Server, process func(...tier.Option) *tier.Mutex) {
		mu := process()
		release(t, acquire(t, mu))
		var c traffic
		s.Intercept(c.note)
		hold := acquire(t, mu)
		time.Sleep(s.Sessions()[0].Timeout / 7)
		release(t, hold)
		want := []string{"create", "getChildren2", "delete"}
		if _, got := c.take(); !slices.Equal(got, want) {
			t.Errorf("requests %v, want %v", got, want)
		}
	})
}

// A turn in strict order is one write, whatever the number of goroutines; and frames are bounded.
func TestFramesOfAStrictTurn(t *testing.T) {
	const next = 0.0001 // to no time at all, so that nothing else happens in the section
	for _, row := range []struct {
		processes int
		want      float64
	}{
		{2, 10},
		{3, 13},
		{4, 15},
		{8, 15},
	} {
		for section, crowds := range map[float64][]int{next: {4}, 0.5: {4, 50}, 2: {4}} {
			for _, goroutines := range crowds {
				t.Run(fmt.Sprintf("%d×%d, sections of %v", row.processes, goroutines, section), func(t *testing.T) {
					far(t, func(t *testing.T, s *zktest.Server, process func(...tier.Option) *tier.Mutex) {
						mutexes := several(row.processes, process, tier.WithHandOff(0))
						var c traffic
						s.Intercept(c.note)
						first, turns := 5*row.processes, 10*row.processes
						takeTurns(t, mutexes, goroutines, trips(section), first+turns, func(turn int) {
							switch turn {
							case first:
								c.take()
							case first + turns:
								frames, requests := c.take()
								if got := float64(frames) / float64(turns); got > row.want {
									t.Errorf("%v frames for each turn, want %v at most", got, row.want)
								}
								if got := zkWrites(requests); got != turns {
									t.Errorf("%d writes for %d turns, want one each", got, turns)
								}
							}
						})
					})
				})
			}
		}
	}
}
