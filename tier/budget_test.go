package tier_test

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/test/locktest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// contend starts eight goroutines in each process. They acquire the lock again and again, until it was transferred rounds times for each
// process. contend returns how long each process held the lock, and how long the whole run took.
func contend(t *testing.T, mutexes []*tier.Mutex, section func(process int) time.Duration, rounds int) (
	had []time.Duration, took time.Duration,
) {
	t.Helper()
	had = make([]time.Duration, len(mutexes)) // guarded by the lock under test, as are changes and owner
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

// wantEqual fails the test unless all processes had the lock for the same time, to within 2 %.
func wantEqual(t *testing.T, had []time.Duration) {
	t.Helper()
	mean := sum(had) / time.Duration(len(had))
	if least, most := slices.Min(had), slices.Max(had); least < mean*98/100 || most > mean*102/100 {
		t.Errorf("processes had the lock for %v", had)
	}
}

// docs/stores.md gives a formula for the share of the time in which a lock is in use. The test compares the formula with measured values
// for several transfer times and budgets.
func TestTimeInUseIsWhatTheDocumentsSay(t *testing.T) {
	const section = time.Millisecond
	use := func(t *testing.T, transfer, budget time.Duration) (percent float64) {
		locktest.Bubble(t, func(t *testing.T, s *zktest.Server) {
			mutexes := times(4, func() *tier.Mutex {
				return at(t, s, after(transfer/2), after(transfer/2), tier.WithHandOff(budget)).Mutex("/locks/a")
			})
			had, took := contend(t, mutexes, always(section), 12)
			wantEqual(t, had)
			percent = 100 * sum(had).Seconds() / took.Seconds()
		})
		return percent
	}
	text := string(need.Get(os.ReadFile("../docs/stores.md"))(t))
	for _, ms := range []float64{0.5, 1, 5, 20} {
		transfer := time.Duration(ms * float64(time.Millisecond))
		byDefault, longer := use(t, transfer, 20*time.Millisecond), use(t, transfer, 19*transfer)
		row := regexp.MustCompile(fmt.Sprintf(`(?m)^\| %g ms \| (\d+) %% \| %g ms \| (\d+) %% \|$`, ms, 19*ms)).FindStringSubmatch(text)
		need.Must(t, fmt.Sprintf("docs/stores.md has no row of %g ms", ms), row != nil)
		for i, is := range []float64{byDefault, longer} {
			says := need.Get(strconv.ParseFloat(row[i+1], 64))(t)
			need.That(t, fmt.Sprintf("%s: it is %.1f %%", row[0], is), math.Abs(is-says) <= 1)
		}
	}
}

// A process holds the lock for the budget and the rest of the section that runs when the budget ends. The length of the other process's
// sections makes no difference.
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
