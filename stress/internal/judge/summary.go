// Package judge reaches the verdict on a run from the evidence: what overlapped, what was
// lost, who was kept waiting, and whether the history is one of a reentrant, fenced mutex.
package judge

import (
	"time"

	"github.com/tierlock/tierlock/stress/internal/durations"
	"github.com/tierlock/tierlock/stress/internal/evidence"
	"github.com/tierlock/tierlock/stress/internal/report"
)

// Summarize completes r, which says what the work was, with what the workers of a run
// without faults tell, nil for one that died, and with what the registers have counted.
func Summarize(r *report.Result, tallies []*evidence.Tally, counted []int64) {
	r.Errors = map[string]int64{}
	r.PerProcess = make([]int64, len(tallies))
	sections := make([]int64, len(counted))
	waits, releases, handOvers, aways := durations.NewHistogram(), durations.NewHistogram(), durations.NewHistogram(), durations.NewHistogram()
	var elapsed, inSection time.Duration
	for i, w := range tallies {
		if w == nil {
			r.DeadWorkers++
			continue
		}
		elapsed = max(elapsed, w.Elapsed)
		inSection += w.InSection
		for path, n := range w.Sections {
			sections[path] += n
			r.PerProcess[i] += n
		}
		r.Acquisitions += r.PerProcess[i]
		r.Late += w.Late
		r.Overlaps += w.Overlaps
		r.TokenRegressions += w.Regressions
		r.Stuck += w.Stuck
		r.Lost += w.Lost
		for kind, n := range w.Errors {
			r.Errors[kind] += n
		}
		waits.Merge(w.Wait)
		releases.Merge(w.Release)
		handOvers.Merge(w.HandOver)
		aways.Merge(w.Away)
	}
	for path, n := range sections {
		r.LostUpdates += max(n-counted[path], counted[path]-n)
	}
	r.Duration = elapsed.Nanoseconds()
	if elapsed > 0 {
		r.PerSecond = float64(r.Acquisitions) / elapsed.Seconds()
		r.Busy = inSection.Seconds() / elapsed.Seconds() / float64(len(counted))
	}
	r.Jain = jain(r.PerProcess)
	r.Wait, r.Curve, r.HandOver = waits.Quantiles(), waits.Curve(), handOvers.Quantiles()
	if r.RTT > 0 {
		release := releases.Quantiles()
		r.Release = &release
	}
	if r.Think == 0 && r.Paths == 1 {
		away := aways.Quantiles()
		r.Away = &away
	}
	r.Decide()
}

// jain is Jain's fairness index: 1 if all have the same, 1/n if one has everything.
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
