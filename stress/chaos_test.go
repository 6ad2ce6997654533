package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/stress/internal/report"
	"github.com/tierlock/tierlock/stress/internal/store"
)

// Locks of each store and of each sort have to work although servers and workers are killed, paused and cut off. Some runs use an ensemble.
// internal/test/tiertest tests the promises of each sort under faults. Runs of every sort on every store take minutes: see the Makefile's
// targets chaos, etcd, postgres and redis.
func TestLocksSurviveChaos(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]struct {
		sort store.Sort
		args []string
	}{
		"zookeeper":         {store.ReadersWriter, []string{"-reads", "0.7"}},
		"etcd":              {store.Mutex, []string{"-ensemble", "3"}},
		"postgres":          {store.Semaphore, []string{"-weight", "2"}},
		"postgres-advisory": {store.Mutex, []string{"-ensemble", "3"}},
		"mysql":             {store.Mutex, nil},
		"redis":             {store.ReadersWriter, []string{"-reads", "0.7", "-ensemble", "3"}},
	} {
		t.Run(name+" "+run.sort.String(), func(t *testing.T) {
			t.Parallel() // each run has servers of its own
			args := append(run.args, "-store", name, "-lock", run.sort.String(), "-chaos", "-duration", "4s", "-procs", "3")
			survives(t, run.sort, runJSON(t, exitPass, args...))
		})
	}
}

func survives(t *testing.T, sort store.Sort, r report.Result) {
	t.Helper()
	c := r.Chaos
	need.Must(t, fmt.Sprintf("got %+v", r), r.Verdict == "PASS" && c != nil)
	need.That(t, fmt.Sprintf("%+v", c), len(c.Faults) != 0 && c.AfterFaults != 0 && c.History == "Ok" && c.Drawing == "")
	need.That(t, fmt.Sprintf("nothing was written: %+v", c), sort == store.Semaphore || c.FencedWrites != 0)
	need.That(t, fmt.Sprintf("no guarded write was made: %+v", c), r.Store != store.MySQL.Name || c.GuardedWrites != 0)
	need.That(t, fmt.Sprintf("no section has read: %+v", r), sort != store.ReadersWriter || r.Readers.Acquisitions != 0)
	need.That(t, fmt.Sprintf("no permits in use: %+v", r), sort != store.Semaphore || r.Permits == 3 && r.Busy != 0)
}

func TestBrokenLockDoesNotSurviveChaos(t *testing.T) {
	t.Parallel()
	r := runJSON(t, exitViolation, "-chaos", "-duration", "1s", "-procs", "2", "-lock", "broken")
	need.Equal(t, "the history of a lock that lets everybody in", r.Chaos.History, "Illegal")
	need.That(t, fmt.Sprintf("%+v", r), r.Overlaps != 0 && r.LostUpdates != 0 && r.TokenRegressions != 0)
	drawing, err := os.ReadFile(r.Chaos.Drawing)
	need.That(t, fmt.Sprintf("drawn in %q: %v, want a page with the operations, next to the records of the workers", r.Chaos.Drawing, err),
		err == nil && strings.HasPrefix(r.Chaos.Drawing, os.TempDir()) && strings.Contains(string(drawing), "acquire: process "))
}
