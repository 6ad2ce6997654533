package sim

import (
	"flag"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/need"
)

var (
	seeds   = flag.Int("seeds", 40, "number of random schedules to run; make sim runs more, without the race detector")
	oneSeed = flag.Uint64("seed", 0, "run this schedule only")
	first   = flag.Uint64("first", 1, "first seed of -seeds")
	shrink  = flag.Bool("shrink", true, "look for smaller plans that fail, too")
)

// TestRandomSchedules runs whole processes through random work and faults. A failing seed is reduced to the smallest
// plan that still fails, and printed with its log. To run it again:
//
//	go test ./internal/sim -run TestRandomSchedules -seed=N -v
func TestRandomSchedules(t *testing.T) {
	next, last := *first-1, *first-1+uint64(*seeds)
	if *oneSeed != 0 {
		next, last = *oneSeed-1, *oneSeed
	}
	var (
		seed                      = atomic.Uint64{}
		turns, violations, failed atomic.Int64
	)
	seed.Store(next)
	t.Run("seeds", func(t *testing.T) {
		for range runtime.GOMAXPROCS(0) {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				for n := seed.Add(1); n <= last && failed.Load() < maxFailed; n = seed.Add(1) {
					r := run(t, NewPlan(n))
					turns.Add(int64(r.Turns))
					if len(r.Violations) > 0 {
						violations.Add(int64(len(r.Violations)))
						failed.Add(1)
						explain(t, r)
					}
				}
			})
		}
	})
	need.That(t, "no lock was ever granted", turns.Load() != 0)
	fmt.Printf("simulation: %d seeds, %d violations\n", min(seed.Load(), last)-next, violations.Load())
}

// maxFailed is after how many failing seeds nothing more is to be learned.
const maxFailed = 10

// run runs a plan in a bubble of its own. What is left in the bubble counts as a violation.
func run(t *testing.T, p Plan) (r Report) {
	t.Helper()
	defer func() {
		if cause := recover(); cause != nil {
			r.Plan = p
			r.Violations = append(r.Violations, fmt.Sprintf("bubble: %v", cause))
		}
	}()
	// Where goroutines spin, virtual time stands still, and no bound in it is ever passed.
	defer time.AfterFunc(time.Minute, func() { fmt.Printf("simulation: does not end: %v\n", p) }).Stop()
	synctest.Test(t, func(*testing.T) { r = Run(p) })
	return r
}

var (
	explaining sync.Mutex // guards the field below; reports of several seeds must not mix
	explained  int        // after the first few it is not worth the time
)

// explain looks for a smaller plan that fails, too, and prints it.
func explain(t *testing.T, r Report) {
	t.Helper()
	explaining.Lock()
	defer explaining.Unlock()
	original := r
	explained++
	for smaller := *shrink && explained <= 2; smaller; {
		smaller = false
		for p := range r.Plan.Smaller() {
			if q, ok := fails(t, p); ok {
				r, smaller = q, true
				break
			}
		}
	}
	t.Errorf("%v\n%s", original.Plan, summary(original.Violations))
	t.Errorf("the smallest plan that failed:\n%v\n%s\n%s\ntry again: go test ./internal/sim -run TestRandomSchedules -seed=%d -v",
		r.Plan, summary(r.Violations), r.Log(), r.Plan.Seed)
}

// fails reports whether a plan fails in one of a few runs, since not everything is in the seed's hands.
func fails(t *testing.T, p Plan) (Report, bool) {
	t.Helper()
	for range 3 {
		if r := run(t, p); len(r.Violations) > 0 {
			return r, true
		}
	}
	return Report{}, false
}

func summary(violations []string) (text string) {
	for i, v := range violations {
		if i == 5 {
			return text + fmt.Sprintf("\t… and %d more\n", len(violations)-i)
		}
		text += "\t" + v + "\n"
	}
	return text
}

// An operator that deletes either znode of a bridged process is the one fault here, so that whoever does not watch
// both is told too late.
func TestBridgedProcessesHearOfTheEndOfEitherZnode(t *testing.T) { // I7
	for seed := range uint64(60) {
		p := NewPlan(seed + 1)
		p.Bridged, p.Troubles = true, []Trouble{Deletion}
		if r := run(t, p); len(r.Violations) > 0 {
			explain(t, r)
		}
	}
}
