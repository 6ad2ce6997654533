package main

import (
	"os"
	"strings"
	"testing"
)

func TestLockSurvivesChaos(t *testing.T) {
	t.Parallel()
	r := runJSON(t, exitPass, "-chaos", "-duration", "4s", "-procs", "3")
	c := r.Chaos
	if r.Verdict != "PASS" || c == nil {
		t.Fatalf("got %+v", r)
	}
	if len(c.Faults) == 0 || c.FencedWrites == 0 || c.AfterFaults == 0 || c.History != "Ok" || c.Drawing != "" {
		t.Errorf("got %+v", c)
	}
}

func TestLockSurvivesChaosOnTheOtherStores(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"etcd", "postgres", "postgres-advisory", "redis"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // each has servers of its own
			r := runJSON(t, exitPass, "-store", name, "-chaos", "-ensemble", "3", "-duration", "4s", "-procs", "3")
			c := r.Chaos
			if r.Verdict != "PASS" || c == nil {
				t.Fatalf("got %+v", r)
			}
			if len(c.Faults) == 0 || c.FencedWrites == 0 || c.AfterFaults == 0 || c.History != "Ok" {
				t.Errorf("got %+v", c)
			}
		})
	}
}

func TestBrokenLockDoesNotSurviveChaos(t *testing.T) {
	t.Parallel()
	r := runJSON(t, exitViolation, "-chaos", "-duration", "1s", "-procs", "2", "-lock", "broken")
	if r.Overlaps == 0 || r.LostUpdates == 0 || r.TokenRegressions == 0 || r.Chaos.History != "Illegal" {
		t.Errorf("a lock that lets everybody in: got %+v, %+v", r, r.Chaos)
	}
	drawing, err := os.ReadFile(r.Chaos.Drawing)
	if err != nil || !strings.HasPrefix(r.Chaos.Drawing, os.TempDir()) || !strings.Contains(string(drawing), ": acquire, token 1") {
		t.Errorf("drawn in %q: %v, want a page beside what the workers saw, with the operations", r.Chaos.Drawing, err)
	}
}

func TestReaderWriterLockSurvivesChaos(t *testing.T) {
	t.Parallel()
	r := runJSON(t, exitPass, "-chaos", "-lock", "rw", "-reads", "0.7", "-duration", "4s", "-procs", "3")
	c := r.Chaos
	if r.Verdict != "PASS" || c == nil {
		t.Fatalf("got %+v", r)
	}
	if len(c.Faults) == 0 || c.FencedWrites == 0 || c.AfterFaults == 0 || c.History != "Ok" || r.Readers.Acquisitions == 0 {
		t.Errorf("got %+v, %+v", c, r.Readers)
	}
}

func TestSemaphoreSurvivesChaos(t *testing.T) {
	t.Parallel()
	r := runJSON(t, exitPass, "-chaos", "-lock", "semaphore", "-weight", "2", "-duration", "4s", "-procs", "3")
	c := r.Chaos
	if r.Verdict != "PASS" || c == nil {
		t.Fatalf("got %+v", r)
	}
	if len(c.Faults) == 0 || c.AfterFaults == 0 || c.History != "Ok" || r.Permits != 3 || r.Busy == 0 {
		t.Errorf("got %+v, %+v", r, c)
	}
}
