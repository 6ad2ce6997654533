package judge

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/stress/internal/durations"
	"github.com/tierlock/tierlock/stress/internal/evidence"
	"github.com/tierlock/tierlock/stress/internal/report"
	"github.com/tierlock/tierlock/stress/internal/rule"
)

func TestSummaryAddsUpTheWorkers(t *testing.T) {
	a, b := tallyOf(30, 10), tallyOf(20, 20)
	a.Elapsed, b.Elapsed = 2*time.Second, time.Second
	a.Goroutines, b.Goroutines, a.Packets, b.Packets = []int64{30, 10}, []int64{40}, 3, 4
	a.Lost, a.Errors = 1, map[string]int64{"x": 1}
	b.Lost, b.Errors = 2, map[string]int64{"x": 2, "y": 1}
	var r report.Result
	Summarize(&r, rule.Mutex(), []*evidence.Tally{a, b}, []int64{50, 30})
	need.Equal(t, fmt.Sprintf("the verdict because of %v", r.Violations()), r.Verdict, "PASS")
	need.That(t, fmt.Sprintf("got %d acquisitions, %v/s, %v, Jain %v", r.Acquisitions, r.PerSecond, r.PerProcess, r.Jain),
		r.Acquisitions == 80 && r.PerSecond == 40 && r.PerProcess[0] == 40 && r.PerProcess[1] == 40 && r.Jain == 1)
	need.That(t, fmt.Sprintf("goroutines with 30 and 10 and 40 turns: Jain %v", r.JainInside), r.JainInside > 0.82 && r.JainInside < 0.83)
	need.Equal(t, "packets", r.Exchanged, 7)
	need.Equal(t, "lost", r.Lost, 3)
	need.That(t, fmt.Sprintf("errors %v", r.Errors), maps.Equal(r.Errors, map[string]int64{"x": 3, "y": 1}))
	need.Between(t, "the longest wait, to within one per cent", time.Duration(r.Wait.Max), time.Millisecond, 1020*time.Microsecond)
}

func TestVerdictFailsOn(t *testing.T) {
	type row struct {
		spoil   func(*report.Result, *evidence.Tally)
		dead    bool
		counted int64
	}
	need.Each(t, map[string]row{
		"overlap":               {spoil: func(_ *report.Result, w *evidence.Tally) { w.Overlaps = 1 }, counted: 10},
		"lost update":           {counted: 9},
		"update out of nowhere": {counted: 11},
		"token going back":      {spoil: func(_ *report.Result, w *evidence.Tally) { w.Regressions = 1 }, counted: 10},
		"leaked node":           {spoil: func(r *report.Result, _ *evidence.Tally) { r.LeakedNodes = 1 }, counted: 10},
		"stuck goroutine":       {spoil: func(_ *report.Result, w *evidence.Tally) { w.Stuck = 1 }, counted: 10},
		"dead worker":           {dead: true, counted: 10},
		"nothing acquired":      {spoil: func(_ *report.Result, w *evidence.Tally) { w.Sections[0] = 0 }, counted: 0},
	}, func(t *testing.T, test row) {
		var r report.Result
		tallies := []*evidence.Tally{tallyOf(10)}
		if test.spoil != nil {
			test.spoil(&r, tallies[0])
		}
		if test.dead {
			tallies = append(tallies, nil)
		}
		Summarize(&r, rule.Mutex(), tallies, []int64{test.counted})
		need.Equal(t, "the verdict", r.Verdict, "FAIL")
		need.Equal(t, fmt.Sprintf("the reasons in %q", r.Violations()), len(r.Violations()), 1)
		var text strings.Builder
		need.OK(t, r.Write(&text, false))
		need.Has(t, "the text, which says why", text.String(), "\nFAIL: "+r.Violations()[0])
	})
}

func TestSidesOfAReaderWriterLock(t *testing.T) {
	a, b := tallyOf(30), tallyOf(30)
	a.Shared[0], b.Shared[0] = 28, 20
	reads := durations.NewHistogram()
	reads.Keep(3 * time.Second)
	a.SharedWait, a.InSection = reads.Export(), 5*time.Second
	share := 0.8
	r := report.Result{Reads: &share, Paths: 1}
	Summarize(&r, rule.ReadersWriter(share), []*evidence.Tally{a, b}, []int64{12})
	need.Equal(t, fmt.Sprintf("the verdict because of %v", r.Violations()), r.Verdict, "PASS")
	need.That(t, fmt.Sprintf("%d turns, away %v", r.Acquisitions, r.Away), r.Acquisitions == 60 && r.Away == nil)
	need.That(t, fmt.Sprintf("got %+v, %+v, %v inside", r.Readers, r.Writers, r.Inside),
		r.Readers.PerSecond == 48 && r.Writers.PerSecond == 12 && r.Writers.PerProcess[0] == 2 && r.Writers.Jain != 1 && r.Inside == 5)
	if slow := 2 * time.Second.Nanoseconds(); r.Readers.Wait.Max < slow || r.Writers.Wait.Max > slow || r.Wait.Max < slow {
		t.Errorf("longest waits: got %d, %d, of all %d", r.Readers.Wait.Max, r.Writers.Wait.Max, r.Wait.Max)
	}
}

func TestPermitsInUse(t *testing.T) {
	a := tallyOf(10)
	a.Used = 8 * time.Second
	r := report.Result{Permits: 10, Paths: 1}
	Summarize(&r, rule.Permits(10, 2), []*evidence.Tally{a}, []int64{10})
	need.Equal(t, "the share", r.Busy, 0.8)
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
		need.Between(t, fmt.Sprintf("jain(%v)", test.counts), jain(test.counts), test.want-1e-12, test.want+1e-12)
	}
}

// tallyOf returns the tally of a worker that ran for one second. sections has the number of its sections on each path. Each section came
// after a wait of 1 ms.
func tallyOf(sections ...int64) *evidence.Tally {
	waits := durations.NewHistogram()
	for _, n := range sections {
		for range n {
			waits.Keep(time.Millisecond)
		}
	}
	none := durations.NewHistogram().Export()
	return &evidence.Tally{Elapsed: time.Second, Sections: sections, Shared: make([]int64, len(sections)), Wait: waits.Export(),
		SharedWait: none, Release: none, HandOver: none, Away: none}
}
