// Package judge decides from the evidence whether a run passes. It looks for overlapping sections, for lost updates and for waits that
// were too long. It also checks whether the history is one of a reentrant, fenced mutex.
package judge

import (
	"time"

	"github.com/tierlock/tierlock/stress/internal/durations"
	"github.com/tierlock/tierlock/stress/internal/evidence"
	"github.com/tierlock/tierlock/stress/internal/report"
	"github.com/tierlock/tierlock/stress/internal/rule"
)

// Summarize fills in the results in r, which already describes the workload. It uses the tallies of the workers and the counts of the
// registers. The tally of a worker that died is nil. Summarize is for runs without faults.
func Summarize(r *report.Result, rule rule.Rule, tallies []*evidence.Tally, counted []int64) {
	r.Errors = map[string]int64{}
	t := newTotals(len(tallies))
	alone := make([]int64, len(counted))
	releases, handOvers, aways := durations.NewHistogram(), durations.NewHistogram(), durations.NewHistogram()
	var elapsed time.Duration
	var goroutines []int64
	for i, w := range tallies {
		if w == nil {
			r.DeadWorkers++
			continue
		}
		elapsed = max(elapsed, w.Elapsed)
		t.inSection += w.InSection
		t.used += w.Used
		for path, n := range w.Sections {
			t.shared[i] += w.Shared[path]
			t.alone[i] += n - w.Shared[path]
			alone[path] += n - w.Shared[path]
		}
		goroutines = append(goroutines, w.Goroutines...)
		r.Exchanged += w.Packets
		r.Late += w.Late
		r.Overlaps += w.Overlaps
		r.TornReads += w.Torn
		r.TokenRegressions += w.Regressions
		r.Stuck += w.Stuck
		r.Lost += w.Lost
		for kind, n := range w.Errors {
			r.Errors[kind] += n
		}
		t.aloneWaits.Merge(w.Wait)
		t.sharedWaits.Merge(w.SharedWait)
		releases.Merge(w.Release)
		handOvers.Merge(w.HandOver)
		aways.Merge(w.Away)
	}
	for path, n := range alone {
		r.LostUpdates += max(n-counted[path], counted[path]-n)
	}
	t.report(r, rule, elapsed)
	r.JainInside = jain(goroutines)
	r.HandOver = handOvers.Quantiles()
	if r.RTT > 0 {
		release := releases.Quantiles()
		r.Release = &release
	}
	if r.Think == 0 && r.Paths == 1 && rule.Room == 1 {
		away := aways.Quantiles()
		r.Away, r.Absences = &away, aways.Count()
	}
	r.Decide()
}

// The function jain returns Jain's fairness index. The index is 1 if all n counts are equal, and 1/n if only one count is not zero.
func jain(counts []int64) float64 {
	var sum, squares float64
	for _, n := range counts {
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(counts)) * squares)
}
