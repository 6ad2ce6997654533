package main

import (
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

func TestLockSurvivesChaos(t *testing.T) {
	r := runJSON(t, exitPass, "-chaos", "-duration", "4s", "-procs", "3")
	c := r.Chaos
	if r.Verdict != "PASS" || c == nil {
		t.Fatalf("got %+v", r)
	}
	if len(c.Faults) == 0 || c.FencedWrites == 0 || c.AfterFaults == 0 || c.History != "Ok" {
		t.Errorf("got %+v", c)
	}
}

func TestBrokenLockDoesNotSurviveChaos(t *testing.T) {
	evidence, err := os.MkdirTemp("", "chaos-") //nolint:usetesting // t.TempDir is too long for the address of a unix socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(evidence)
	t.Setenv("TMPDIR", evidence)
	r := runJSON(t, exitViolation, "-chaos", "-duration", "1s", "-procs", "2", "-lock", "broken")
	if r.Overlaps == 0 || r.LostUpdates == 0 || r.TokenRegressions == 0 || r.Chaos.History != "Illegal" {
		t.Errorf("a lock that lets everybody in: got %+v, %+v", r, r.Chaos)
	}
}

func TestVerdictOfChaosFailsOn(t *testing.T) {
	const second = instant(time.Second)
	for _, test := range []struct {
		name  string
		spoil func(*evidence)
		want  string
	}{
		{"nothing", func(*evidence) {}, ""},
		{"overlap", func(e *evidence) { e.holds[0].Valid = e.holds[1].Got + 1 }, "overlap"},
		{"kernel lock taken", func(e *evidence) {
			e.holds[1].Met = &overlap{e.holds[1].Got + 1, e.holds[1].Got + 2}
		}, "overlap"},
		{"lost update", func(e *evidence) { e.fence.lostFenced = 1 }, "lost updates"},
		{"equal tokens", func(e *evidence) { e.fence.regressions = 1 }, "tokens"},
		{"blind holder", func(e *evidence) { e.holds[0].Blind = true }, "saw no loss"},
		{"illegal history", func(e *evidence) { e.holds[1].Token = e.holds[0].Token }, "illegal history"},
		{"no progress", func(e *evidence) { e.holds = e.holds[:1] }, "after the last fault"},
		{"stall", func(e *evidence) { e.end = 60 * second }, "longer than the faults explain"},
		{"fault not healed", func(e *evidence) { e.diary.errors = []error{io.EOF} }, "could not be undone"},
		{"leak", func(e *evidence) { e.leaked = 1 }, "left behind"},
		{"death of the last worker", func(e *evidence) { e.reports[0] = nil }, "died"},
		{"death of an earlier worker", func(e *evidence) { e.deaths = 1 }, "died"},
		{"stuck goroutine", func(e *evidence) { e.reports[0].Stuck = 1 }, "stuck"},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := &evidence{
				cfg:    Config{Procs: 2, Goroutines: 1, Paths: 1, SessionTimeout: time.Second},
				healed: 2 * second, end: 4 * second,
				diary:   &diary{counts: map[string]int64{}},
				holds:   []hold{span(1, 5, second, second+10), span(2, 6, 3*second, 3*second+10)},
				reports: []*report{{}, {}},
			}
			test.spoil(e)
			r := e.judge()
			found := strings.Join(r.violations(), "; ")
			if (r.Verdict == "PASS") != (test.want == "") || !strings.Contains(found, test.want) {
				t.Errorf("got %s because of %q, want %q", r.Verdict, found, test.want)
			}
			if err := printText(io.Discard, r); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestInterruptedChaosNeedsNoProgress(t *testing.T) {
	c := &Chaos{Interrupted: true, AfterFaults: 0, Stalls: 1}
	for _, v := range c.violations() {
		if v.n != 0 {
			t.Errorf("got %d %s", v.n, v.what)
		}
	}
}

func TestShapeOfChaos(t *testing.T) {
	c, err := parseFlags(strings.Fields("-chaos -paths 7 -handoff 0 -linger 5ms"), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	if c.Paths != 7 || c.Section == 0 || *c.HandOff != 0 || *c.Linger != 5*time.Millisecond {
		t.Errorf("got %+v", c)
	}
	c, err = parseFlags([]string{"-chaos", "-cs", "0s"}, os.Stderr)
	if err != nil || c.Section != 0 || c.HandOff != nil {
		t.Errorf("got %+v, %v", c, err)
	}
	if c.judging() != byKernel || (&Config{}).judging() != byCount {
		t.Error("the dead are to let go under chaos, and only there does that cost time")
	}
}
