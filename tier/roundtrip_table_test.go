package tier_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// The tables below are measured in virtual time. A message to or from the server takes half a round trip, and a section takes its given
// time. Everything else takes no time, and therefore every figure is exact.

const roundTrip = 20 * time.Millisecond

func trips(n float64) time.Duration { return time.Duration(n * float64(roundTrip)) }

func inTrips(d time.Duration) float64 { return float64(d) / float64(roundTrip) }

func TestRoundTripsOfEachCall(t *testing.T) {
	count := func(f func()) float64 {
		start := time.Now()
		f()
		return inTrips(time.Since(start))
	}
	acquiring := func(t *testing.T, mu *tier.Mutex) float64 {
		return count(func() { acquire(t, mu) })
	}
	trying := func(t *testing.T, mu *tier.Mutex, want error) float64 {
		return count(func() { wantErr(t, "TryAcquire", errOf(mu.TryAcquire(soon(t))), want) })
	}
	for _, row := range []struct {
		name string
		run  func(t *testing.T, mu, elsewhere *tier.Mutex) float64 // both have the same path, which is in use
		want float64
	}{
		{"Acquire, nobody there", func(t *testing.T, mu, _ *tier.Mutex) float64 { return acquiring(t, mu) }, 1},
		{"Release", func(t *testing.T, mu, _ *tier.Mutex) float64 {
			hold := acquire(t, mu)
			return count(func() { release(t, hold) })
		}, 1},
		{"TryAcquire, nobody there", func(t *testing.T, mu, _ *tier.Mutex) float64 { return trying(t, mu, nil) }, 2},
		{"TryAcquire, somebody there", func(t *testing.T, mu, elsewhere *tier.Mutex) float64 {
			acquire(t, elsewhere)
			return trying(t, mu, tier.ErrLocked)
		}, 1},
		{"Acquire, new path below a used one", func(t *testing.T, mu, _ *tier.Mutex) float64 {
			return acquiring(t, tier.Sibling(mu, "/locks/new"))
		}, 2},
		{"Acquire, new path of depth 1", func(t *testing.T, mu, _ *tier.Mutex) float64 {
			return acquiring(t, tier.Sibling(mu, "/x"))
		}, 2},
		{"TryAcquire, new path of depth 3", func(t *testing.T, mu, _ *tier.Mutex) float64 {
			return trying(t, tier.Sibling(mu, "/x/y/z"), nil)
		}, 2},
		{"Acquire, new path of depth 3", func(t *testing.T, mu, _ *tier.Mutex) float64 {
			return acquiring(t, tier.Sibling(mu, "/x/y/z"))
		}, 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			far(t, func(t *testing.T, _ *zktest.Server, process func(...tier.Option) *tier.Mutex) {
				mu, elsewhere := process(), process()
				release(t, acquire(t, mu))
				need.Equal(t, "round trips", row.run(t, mu, elsewhere), row.want)
			})
		})
	}
}

// A request for one lock waits a little for requests of other locks, so that they are sent together.
func TestLockAmongOthersTakesAQuarterOfARoundTripMore(t *testing.T) {
	far(t, func(t *testing.T, _ *zktest.Server, process func(...tier.Option) *tier.Mutex) {
		idle := process()
		release(t, acquire(t, idle))
		var took []time.Duration
		var others sync.WaitGroup
		done := make(chan struct{})
		for i := range 50 {
			others.Go(func() {
				busy := tier.Sibling(idle, fmt.Sprintf("/locks/busy %d", i))
				for closed := false; !closed; {
					hold := acquire(t, busy)
					time.Sleep(trips(float64(i) / 25)) // different times, so that the releases are spread
					release(t, hold)
					select {
					case <-done:
						closed = true
					default:
					}
				}
			})
		}
		time.Sleep(trips(20))
		for range 50 {
			begun := time.Now()
			hold := acquire(t, idle)
			took = append(took, time.Since(begun))
			release(t, hold)
		}
		close(done)
		others.Wait()
		need.AtMost(t, "round trips of an Acquire", inTrips(slices.Max(took)), 1.25)
		stats := tier.RegistryOf(tier.RWSibling(idle)).Stats()
		need.That(t, fmt.Sprintf("counted %d groups of %d", stats.Groups, stats.Grouped), stats.Groups > 0 && stats.Grouped >= 2*stats.Groups)
	})
}

func several(n int, process func(...tier.Option) *tier.Mutex, opts ...tier.Option) (mutexes []*tier.Mutex) {
	for range n {
		mutexes = append(mutexes, process(opts...))
	}
	return mutexes
}

// takeTurns lets goroutines of each process acquire the lock again and again, until it was transferred n times. It returns how long each
// transfer took: from the call of Release to the return of Acquire in another process. In each section, takeTurns calls during with the
// number of the acquisition.
func takeTurns(t *testing.T, mutexes []*tier.Mutex, goroutines int, section time.Duration, n int, during func(turn int)) []time.Duration {
	t.Helper()
	var (
		took  []time.Duration // these variables are guarded by the lock under test
		turn  int
		owner = -1
		left  time.Time
		all   sync.WaitGroup
	)
	for i, mu := range mutexes {
		for range goroutines {
			all.Go(func() {
				for enough := false; !enough; {
					hold := acquire(t, mu)
					if owner >= 0 && owner != i {
						took = append(took, time.Since(left))
					}
					enough = len(took) >= n
					turn++
					time.Sleep(section / 3) // at this moment, no frame is sent and none arrives
					during(turn)
					time.Sleep(section - section/3)
					owner, left = i, time.Now()
					release(t, hold)
				}
			})
		}
	}
	all.Wait()
	return took[:n]
}

// In strict order, the lock goes to another process after each acquisition. With a budget of one round trip, a process can acquire several
// times in a row if its sections are short. The short sections here take a little time, because sections without length would never use up
// the budget.
//
// A process with one goroutine queues again when its Release has returned. At that moment, the next process gets the lock. If there are
// only two processes, the watch of the first one reaches the server two round trips after the call of that Release. A section that is
// shorter than one round trip has ended before that.
func TestRoundTripsOfAHandOver(t *testing.T) {
	const short, half, long = 0.05, 0.5, 2
	type figures map[float64]float64 // by the length of the section
	one := figures{0: 1, short: 1, half: 1, long: 1}
	for _, row := range []struct {
		processes, goroutines int
		handOff               time.Duration // 0 stands for strict order
		sections              []float64
		want                  figures
	}{
		{2, 4, 0, []float64{0, half, long}, one},
		{3, 4, 0, []float64{0, half, long}, one},
		{8, 4, 0, []float64{0, half, long}, one},

		{2, 4, roundTrip, []float64{short, half, long}, one},
		{3, 4, roundTrip, []float64{short, half, long}, one},
		{8, 4, roundTrip, []float64{short, half, long}, one},

		{2, 1, 0, []float64{0, half, long}, figures{0: 2, half: 1.5, long: 1}},
		{3, 1, 0, []float64{0, half, long}, one},
		{8, 1, 0, []float64{0, half, long}, one},
	} {
		for _, section := range row.sections {
			name := fmt.Sprintf("%d×%d, hand-off %v, sections of %v", row.processes, row.goroutines, row.handOff, section)
			t.Run(name, func(t *testing.T) {
				far(t, func(t *testing.T, _ *zktest.Server, process func(...tier.Option) *tier.Mutex) {
					changes := 10 * row.processes
					order := tier.WithStrictOrder()
					if row.handOff > 0 {
						order = tier.WithHandOff(row.handOff)
					}
					mutexes := several(row.processes, process, order)
					took := takeTurns(t, mutexes, row.goroutines, trips(section), changes, func(int) {})
					took = took[changes/2:] // drops the first transfers, in which the order of the queue is not stable yet
					need.AtLeast(t, "round trips", inTrips(slices.Min(took)), 1)
					need.AtMost(t, "round trips", inTrips(slices.Max(took)), row.want[section])
				})
			})
		}
	}
}
