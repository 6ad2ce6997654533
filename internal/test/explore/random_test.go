package explore

import (
	"flag"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
)

var (
	seeds    = flag.Int("seeds", 40, "number of random schedules to run; make sim runs more, without the race detector")
	oneSeed  = flag.Uint64("seed", 0, "run this schedule only")
	unshrunk = flag.Bool("unreduced", false, "leave a schedule that fails as it is")
)

// The test stops after maxFailed failing seeds, because further ones would show nothing new.
const maxFailed = 10

// TestRandomSchedules runs long schedules of random scopes. It shortens a schedule that fails. To run that schedule again:
//
//	go test ./internal/test/explore -run TestRandomSchedules -seed=N
func TestRandomSchedules(t *testing.T) {
	next, last := uint64(0), uint64(*seeds)
	if *oneSeed != 0 {
		next, last = *oneSeed-1, *oneSeed
	}
	var seed atomic.Uint64
	var failed atomic.Int64
	seed.Store(next)
	begun := time.Now()
	t.Run("seeds", func(t *testing.T) {
		for range runtime.GOMAXPROCS(0) {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				for n := seed.Add(1); n <= last && failed.Load() < maxFailed; n = seed.Add(1) {
					s, steps := Drawn(n)
					// If goroutines spin, virtual time stands still, and no bound in it ever expires.
					stuck := time.AfterFunc(time.Minute, func() { panic(fmt.Sprintf("seed %d does not end: %s", n, written(s))) })
					if v := (Random{s.Begin, n, steps}).Run(t, failed.Load() < 2 && !*unshrunk); v != nil {
						failed.Add(1)
						t.Errorf("seed %d: %s", n, v.Test(written(s)))
					}
					stuck.Stop()
				}
			})
		}
	})
	n := min(seed.Load(), last) - next
	fmt.Printf("simulation: %d seeds, %.0f a second, %d violations\n", n, float64(n)/time.Since(begun).Seconds(), failed.Load())
}

// In this scope, the only fault is an operator who deletes one of the two znodes of a bridged process. A process that watches only one
// znode would learn too late that the other one is gone.
func TestBridgedProcessesHearOfTheEndOfEitherZnode(t *testing.T) { // I7
	for seed := range uint64(60) {
		s := Scope{ZooKeeper: true, Long: true, Processes: 2, Calls: []Call{Lock, Lock}, Turns: 4, Bridged: true, Remove: true, Clock: lease / 16}
		if v := (Random{s.Begin, seed, 200}).Run(t, true); v != nil {
			t.Errorf("seed %d: %s", seed, v.Test(written(s)))
		}
	}
}

// A notification tells the holder that its second znode was deleted. The holder does not have to wait for the next heartbeat.
func TestHolderHearsOfTheEndOfItsSecondZnode(t *testing.T) { // I7
	s := Scope{ZooKeeper: true, Long: true, Processes: 1, Calls: []Call{Lock}, Bridged: true, Remove: true, Clock: lease / 30}
	passed := 0
	v := play(t, s.Begin, func(steps []Step) *Step {
		const remove = "an operator removes the second znode of p1 at /lock"
		for i, x := range steps {
			if holds := steps[0].Name == "p1.g1 releases"; holds && passed < 20 && (x.Name == "300ms pass" || passed == 10 && x.Name == remove) {
				passed++
				return &steps[i]
			}
		}
		return nil
	})
	if v != nil {
		t.Error(v.Test(written(s)))
	}
	need.Equal(t, "steps of time, and the one of the operator", passed, 20)
}

// The report of a violation contains only the steps that are necessary, and these reproduce the violation.
func TestLongSchedulesAreReduced(t *testing.T) {
	s := Scope{Long: true, Processes: 4, Calls: []Call{Lock, Lock, Nested}, Turns: 4, Cancel: true, Lost: true, seed: seed{remove: 1}}
	for seed := range uint64(200) {
		r := Random{s.Begin, seed, 200}
		long := r.Run(t, false)
		if long == nil {
			continue
		}
		short := long.reduce(t, s.Begin)
		need.Equal(t, "judge", short.judge(), long.judge())
		need.AtMost(t, "steps of some hundred", len(short.Schedule), 20)
		err := Replay(t, s.Begin, short.Schedule...)
		need.Must(t, fmt.Sprintf("the same steps again: %v, want %v", err, short.Wrong), err != nil)
		t.Logf("%d steps, and then %d: %v", len(long.Schedule), len(short.Schedule), err)
		return
	}
	t.Error("no seed finds that contenders are removed")
}
