package main

import (
	"maps"
	"strings"
	"testing"
	"time"
)

func TestSummaryAddsUpTheWorkers(t *testing.T) {
	a, b := reportOf(30, 10), reportOf(20, 20)
	a.Elapsed, b.Elapsed = 2*time.Second, time.Second
	a.Lost, a.Errors = 1, map[string]int64{"x": 1}
	b.Lost, b.Errors = 2, map[string]int64{"x": 2, "y": 1}
	var r Result
	r.summarize([]*report{a, b}, []int64{50, 30})
	if r.Verdict != "PASS" {
		t.Errorf("verdict: got %s because of %v, want PASS", r.Verdict, r.violations())
	}
	if r.Acquisitions != 80 || r.PerSecond != 40 || r.PerProcess[0] != 40 || r.PerProcess[1] != 40 || r.Jain != 1 {
		t.Errorf("got %d acquisitions, %v/s, %v, Jain %v", r.Acquisitions, r.PerSecond, r.PerProcess, r.Jain)
	}
	if want := map[string]int64{"x": 3, "y": 1}; r.Lost != 3 || !maps.Equal(r.Errors, want) {
		t.Errorf("got lost %d, errors %v, want 3, %v", r.Lost, r.Errors, want)
	}
	if got := time.Duration(r.Wait.Max); got < time.Millisecond || got > 1020*time.Microsecond {
		t.Errorf("longest wait: got %v, want 1 ms to within one per cent", got)
	}
}

func TestVerdictFailsOn(t *testing.T) {
	for _, test := range []struct {
		name    string
		spoil   func(*Result, *report)
		dead    bool
		counted int64
	}{
		{name: "overlap", spoil: func(_ *Result, w *report) { w.Overlaps = 1 }, counted: 10},
		{name: "lost update", counted: 9},
		{name: "update out of nowhere", counted: 11},
		{name: "token going back", spoil: func(_ *Result, w *report) { w.Regressions = 1 }, counted: 10},
		{name: "leaked node", spoil: func(r *Result, _ *report) { r.LeakedNodes = 1 }, counted: 10},
		{name: "stuck goroutine", spoil: func(_ *Result, w *report) { w.Stuck = 1 }, counted: 10},
		{name: "dead worker", dead: true, counted: 10},
		{name: "nothing acquired", spoil: func(_ *Result, w *report) { w.Sections[0] = 0 }, counted: 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			var r Result
			reports := []*report{reportOf(10)}
			if test.spoil != nil {
				test.spoil(&r, reports[0])
			}
			if test.dead {
				reports = append(reports, nil)
			}
			r.summarize(reports, []int64{test.counted})
			if r.Verdict != "FAIL" || len(r.violations()) != 1 {
				t.Errorf("got %s with %v, want FAIL for one reason", r.Verdict, r.violations())
			}
			var text strings.Builder
			if err := printText(&text, &r); err != nil || !strings.Contains(text.String(), "\nFAIL: "+r.violations()[0]) {
				t.Errorf("the text does not say why: %v\n%s", err, &text)
			}
		})
	}
}

func TestRTTIsPartOfTheWork(t *testing.T) {
	r := Result{Procs: 2, Goroutines: 3, Paths: 1, RTT: (20 * time.Millisecond).Nanoseconds(), Release: &Quantiles{P50: 21e6}}
	if got, want := r.work(), "2 × 3, empty section, RTT of 20 ms"; got != want {
		t.Errorf("on a page: got %q, want %q", got, want)
	}
	var text strings.Builder
	if err := printText(&text, &r); err != nil || !strings.Contains(text.String(), ", rtt 20ms,") ||
		!strings.Contains(text.String(), "release     p50 21ms") {
		t.Errorf("as text: %v\n%s", err, &text)
	}
}

func TestJain(t *testing.T) {
	for _, test := range []struct {
		counts []int64
		want   float64
	}{
		{[]int64{7, 7, 7, 7}, 1},
		{[]int64{9, 0, 0}, 1.0 / 3},
		{[]int64{3, 1}, 0.8},
		{[]int64{0, 0}, 0},
	} {
		if got := jain(test.counts); got < test.want-1e-12 || got > test.want+1e-12 {
			t.Errorf("jain(%v): got %v, want %v", test.counts, got, test.want)
		}
	}
}

func TestParseTraffic(t *testing.T) {
	const srvr = "Zookeeper version: 3.8.0, built on 2024-12-29 17:54 UTC\nLatency min/avg/max: 0/0.0/0\n" +
		"Received: 40\nSent: 2\nConnections: 1\nOutstanding: 0\nZxid: 0x1f\nMode: standalone\nNode count: 5\n"
	if got, ok := parseTraffic(srvr); got != (traffic{packets: 42, writes: 31}) || !ok {
		t.Errorf("got %+v, %t, want 42 packets, 31 writes", got, ok)
	}
	if got, ok := parseTraffic("srvr is not executed because it is not in the whitelist.\n"); ok {
		t.Errorf("refusal: got %+v", got)
	}
}

// reportOf is the report of a worker that did so many sections per path, each after a
// wait of 1 ms, in one second.
func reportOf(sections ...int64) *report {
	waits := newHistogram()
	for _, n := range sections {
		_ = waits.RecordValues(int64(time.Millisecond), n)
	}
	none := newHistogram().Export()
	return &report{Elapsed: time.Second, Sections: sections, Wait: waits.Export(), Release: none, HandOver: none, Away: none}
}
