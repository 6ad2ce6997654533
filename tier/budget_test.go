package tier_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/locktest"
	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/need"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zktest"
)

// contend has eight goroutines of each process loop over the lock until it has changed process so many times for each. It returns for how
// long each process had it, and how long that took.
func contend(t *testing.T, mutexes []*tier.Mutex, section func(process int) time.Duration, rounds int) (
	had []time.Duration, took time.Duration,
) {
	t.Helper()
	had = make([]time.Duration, len(mutexes)) // guarded by the lock under test, as are the next two
	changes, owner := 0, -1
	var all sync.WaitGroup
	begun := time.Now()
	for i, mu := range mutexes {
		for range 8 {
			all.Go(func() {
				for enough := false; !enough; {
					hold := acquire(t, mu)
					if owner != i {
						changes++
					}
					owner, enough = i, changes > rounds*len(mutexes)
					if !enough {
						time.Sleep(section(i))
						had[i] += section(i)
						took = time.Since(begun)
					}
					release(t, hold)
				}
			})
		}
	}
	all.Wait()
	return had, took
}

func always(section time.Duration) func(int) time.Duration {
	return func(int) time.Duration { return section }
}

func sum(had []time.Duration) (all time.Duration) {
	for _, d := range had {
		all += d
	}
	return all
}

// wantEqual fails unless the shares of all processes are within 2 % of equal.
func wantEqual(t *testing.T, had []time.Duration) {
	t.Helper()
	mean := sum(had) / time.Duration(len(had))
	if least, most := slices.Min(had), slices.Max(had); least < mean*98/100 || most > mean*102/100 {
		t.Errorf("processes had the lock for %v", had)
	}
}

func TestALockFarAwayIsInUse(t *testing.T) {
	far(t, func(t *testing.T, _ *zktest.Server, process func(...tier.Option) *tier.Mutex) {
		mutexes := several(4, process)
		contend(t, mutexes, always(time.Millisecond), 10) // until all have measured
		had, took := contend(t, mutexes, always(time.Millisecond), 20)
		need.AtLeast(t, "the time in use", sum(had), took*95/100)
		wantEqual(t, had)
	})
}

// The budget that is measured is for readers, too: a downgraded writer keeps those of other processes out for as long.
func TestReadersHaveTheBudgetThatIsMeasured(t *testing.T) {
	rwMetered(t, func(t *testing.T, s *memory.Server, m *meter, process func(...tier.Option) *tier.RWMutex) {
		a, b := process(), process(tier.WithHandOff(0))
		answerLate(s, queue.Leave, roundTrip)
		for range 9 {
			release(t, acquire(t, a.Writer()))
		}
		s.Script(nil)
		budget := tier.RegistryOf(a).Stats().Budget
		write := acquire(t, a.Writer())
		read := start(write.Context(soon(t)), a.Reader()).granted(t)
		release(t, write)
		begun := time.Now()
		other := start(soon(t), b.Reader()).granted(t)
		need.AtLeast(t, "the budget", budget, 19*roundTrip)
		need.Equal(t, "the wait of a reader of another process", time.Since(begun), budget)
		release(t, read)
		release(t, other)
	})
}

// The budget of all is that of the one that is far away, although it makes a share of one that is near take longer.
func TestProcessesNearAndFarHaveEqualShares(t *testing.T) {
	locktest.InMemory(t, func(t *testing.T, s *memory.Server) {
		s.Script(func(process string, _ queue.Command) memory.Fault {
			if process == "far" {
				return memory.Fault{Before: roundTrip / 2, After: roundTrip / 2}
			}
			return memory.Fault{Before: time.Millisecond / 2, After: time.Millisecond / 2}
		})
		var all []*tier.Registry
		var mutexes []*tier.Mutex
		for _, name := range []string{"near", "near", "far", "near"} {
			locks, _ := dial(t, s, name)
			all, mutexes = append(all, locks), append(mutexes, locks.Mutex("/locks/a"))
		}
		had, took := contend(t, mutexes, always(5*time.Millisecond), 100)
		wantEqual(t, had)
		need.AtLeast(t, "a tenure on average", took/(4*100), 19*roundTrip*9/10)
		need.Equal(t, "the budget of a process that is near", all[0].Stats().Budget, 20*time.Millisecond)
		need.Between(t, "the budget of the one that is far", all[2].Stats().Budget, 19*roundTrip, 19*roundTrip*11/10)
	})
}

// A process has the lock for the budget and a part of its last section, whatever the sections of the other one are.
func TestProcessesWithUnlikeSections(t *testing.T) { // I11
	const budget, short, rounds = 20 * time.Millisecond, time.Millisecond, 100
	for _, long := range []time.Duration{7 * time.Millisecond, 19 * time.Millisecond, 100 * time.Millisecond} {
		t.Run(long.String(), func(t *testing.T) {
			locktest.InMemory(t, func(t *testing.T, s *memory.Server) {
				s.Script(func(string, queue.Command) memory.Fault {
					return memory.Fault{Before: time.Millisecond / 2, After: time.Millisecond / 2}
				})
				a, _ := dial(t, s, "a")
				b, _ := dial(t, s, "b")
				had, took := contend(t, []*tier.Mutex{a.Mutex("/locks/a"), b.Mutex("/locks/a")}, func(process int) time.Duration {
					return []time.Duration{short, long}[process]
				}, rounds)
				need.Between(t, "a tenure of short sections", had[0]/rounds, budget*9/10, budget+short)
				need.Between(t, "a tenure of long sections", had[1]/rounds, max(budget, long)*9/10, budget+long)
				need.AtLeast(t, "the time in use", sum(had), took*97/100)
				t.Logf("%v of %v", had, took)
			})
		})
	}
}
