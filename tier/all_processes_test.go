//go:build unix

package tier_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tierlock/tierlock"
	"github.com/tierlock/tierlock/internal/witness"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
)

// What the processes of the test below take sets of.
const (
	gatherers  = "gatherer"
	gatherLock = "/gathered/%d"
	gatherOf   = 8
	gatherWait = 5 * time.Minute // after which somebody is stuck, on any machine
)

func init() { // TestMain is for systems without a witness, too
	if witness.Role() == gatherers {
		if err := gatherUntilStopped(); err != nil {
			log.Fatal(err)
		}
		os.Exit(0)
	}
}

// gatherUntilStopped is one process: two goroutines, each with one set of locks after the other.
func gatherUntilStopped() error {
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		witness.Stopped()
		stop()
	}()
	opts := []tierlock.Option{zklock.WithSessionTimeout(time.Minute)} // which no busy machine uses up
	if os.Getpid()%2 == 0 {
		opts = append(opts, tier.WithLinger(time.Second))
	}
	locks, err := tierlock.Dial(ctx, os.Getenv("SERVER"), opts...)
	if err != nil {
		return err
	}
	defer locks.Close()
	errs := make([]error, 2)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			for ctx.Err() == nil && errs[i] == nil {
				errs[i] = gatherOnce(ctx, locks)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// gatherOnce takes two to four locks in a random order, and works under all of them.
func gatherOnce(ctx context.Context, locks *tier.Registry) error {
	set := rand.Perm(gatherOf)[:2+rand.IntN(3)]
	var mutexes []*tier.Mutex
	for _, lock := range set {
		mutexes = append(mutexes, locks.Mutex(fmt.Sprintf(gatherLock, lock)))
	}
	wait, cancel := context.WithTimeout(ctx, gatherWait)
	defer cancel()
	bundle, err := tier.AcquireAll(wait, mutexes...)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	return errors.Join(workOn(set), bundle.Err(), bundle.Release())
}

// workOn has the kernel look on while all locks of a set are held.
func workOn(set []int) (err error) {
	if len(set) == 0 {
		return nil
	}
	w := witness.Witness(os.Getenv("WITNESS"))
	return errors.Join(w.Work(fmt.Sprint(set[0]), 0, func() { err = workOn(set[1:]) }), err)
}

func TestProcessesThatTakeRandomSetsOfLocksNeverWaitForEachOther(t *testing.T) { // I1
	t.Parallel()
	const processes, enough = 8, 20 // locks for each, while all are at it
	addr, w := realServer(t), witness.Witness(t.TempDir())
	var fleet []*witness.Process
	for range processes {
		fleet = append(fleet, witness.Start(t, gatherers, "SERVER="+addr, "WITNESS="+string(w)))
	}
	var begun time.Time
	for _, locks := range []int{1, enough} {
		eventually(t, fmt.Sprintf("each process has got %d locks", locks), func() bool {
			got := worked(t, w, begun)
			return len(got) == processes && slices.Min(slices.Collect(maps.Values(got))) >= locks
		})
		begun = time.Now()
	}
	for _, p := range fleet {
		if err := p.Stop(); err != nil {
			t.Errorf("process %d: %v", p.Process.Pid, err)
		}
	}
	w.Tally(t, "") // fails if two had a lock at once
	locks := zkDial(t, addr)
	for lock := range gatherOf {
		awaitContenders(t, locks.Mutex(fmt.Sprintf(gatherLock, lock)), 0)
	}
}

// worked returns how many locks each process has got since then; those that got none are not there.
func worked(t *testing.T, w witness.Witness, since time.Time) map[int]int {
	t.Helper()
	entries, err := w.Entries()
	if err != nil {
		t.Fatal(err)
	}
	count := make(map[int]int)
	for _, e := range entries {
		if e.At.After(since) {
			count[e.Pid]++
		}
	}
	return count
}
