package main

import (
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Result is what a run found. Durations are in nanoseconds.
type Result struct {
	Lock       string `json:"lock"`
	Procs      int    `json:"procs"`
	Goroutines int    `json:"goroutines"`
	Paths      int    `json:"paths"`
	Section    int64  `json:"cs_ns"`
	Think      int64  `json:"think_ns"`
	RTT        int64  `json:"rtt_ns"`      // added to that of the network
	Duration   int64  `json:"duration_ns"` // as run, which an interrupt makes shorter than asked for
	Seed       uint64 `json:"seed"`

	Acquisitions int64   `json:"acquisitions"`
	Late         int64   `json:"late_acquisitions"` // after the end of the run, by locks that cannot be stopped from it
	PerSecond    float64 `json:"per_second"`
	PerProcess   []int64 `json:"per_process"`
	Jain         float64 `json:"jain"`
	Busy         float64 `json:"busy"` // share of the time in which a path was in its section

	Wait     Quantiles  `json:"wait_ns"` // from asking for the lock to having it
	Curve    []Quantile `json:"wait_curve"`
	Release  *Quantiles `json:"release_ns"`  // from the end of a section to the return of Release; null without an RTT
	HandOver Quantiles  `json:"handover_ns"` // from the end of a section to the next one, in another process
	// Away is how long processes were without the lock while others had it; null where
	// they do not want it all the time.
	Away        *Quantiles `json:"away_ns"`
	AwayBound   int64      `json:"away_bound_ns,omitempty"`   // what the lock promises of it, if it does
	QuorumWrite int64      `json:"quorum_write_ns,omitempty"` // median of a small write to the same server, without the RTT

	Overlaps         int64 `json:"overlaps"`
	LostUpdates      int64 `json:"lost_updates"`
	TokenRegressions int64 `json:"token_regressions"`
	LeakedNodes      int64 `json:"leaked_nodes"` // children of the lock paths once all goroutines had released
	Stuck            int64 `json:"stuck"`        // goroutines that Acquire kept long after the end of its ctx
	DeadWorkers      int64 `json:"dead_workers"` // processes without a report

	Lost    int64            `json:"lost"`
	Errors  map[string]int64 `json:"errors"`
	Packets *float64         `json:"zk_packets_per_acquisition"` // late ones included; null if a server does not answer srvr
	Writes  *float64         `json:"zk_writes_per_acquisition"`  // transactions; likewise

	Chaos *Chaos `json:"chaos"` // null without faults

	Environment *environment `json:"environment,omitempty"`

	Baseline *Result `json:"baseline"`
	Ratio    float64 `json:"ratio"`   // to the baseline's rate; zero without one
	Verdict  string  `json:"verdict"` // PASS or FAIL
}

// report is what one worker found.
type report struct {
	Elapsed     time.Duration
	InSection   time.Duration
	Sections    []int64 // completed, per path
	Late        int64   // acquisitions after the end, which did nothing
	Overlaps    int64
	Regressions int64
	Stuck       int64
	Lost        int64
	Errors      map[string]int64
	Wait        *hdrhistogram.Snapshot
	Release     *hdrhistogram.Snapshot
	HandOver    *hdrhistogram.Snapshot
	Away        *hdrhistogram.Snapshot
}

// summarize adds what the workers report, nil for a worker that died, and what the
// registers have counted, and judges.
func (r *Result) summarize(reports []*report, counted []int64) {
	r.Errors = map[string]int64{}
	r.PerProcess = make([]int64, len(reports))
	sections := make([]int64, len(counted))
	waits, releases, handOvers, aways := newHistogram(), newHistogram(), newHistogram(), newHistogram()
	var elapsed, inSection time.Duration
	for i, w := range reports {
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
		waits.Merge(hdrhistogram.Import(w.Wait))
		releases.Merge(hdrhistogram.Import(w.Release))
		handOvers.Merge(hdrhistogram.Import(w.HandOver))
		aways.Merge(hdrhistogram.Import(w.Away))
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
	r.Wait, r.Curve, r.HandOver = quantilesOf(waits), curveOf(waits), quantilesOf(handOvers)
	if r.RTT > 0 {
		release := quantilesOf(releases)
		r.Release = &release
	}
	if r.Think == 0 && r.Paths == 1 {
		away := quantilesOf(aways)
		r.Away = &away
	}
	r.decide()
}

// decide reaches the verdict.
func (r *Result) decide() {
	r.Verdict = "PASS"
	if len(r.violations()) > 0 {
		r.Verdict = "FAIL"
	}
}

// compare sets the result beside that of another lock.
func (r *Result) compare(baseline *Result) {
	r.Baseline = baseline
	if baseline.PerSecond > 0 {
		r.Ratio = r.PerSecond / baseline.PerSecond
	}
}

// violation is what must not be: n times what.
type violation struct {
	n    int64
	what string
}

// violations says why the run fails; none if it passes.
func (r *Result) violations() []string {
	var found []string
	for _, v := range append(r.Chaos.violations(), []violation{
		{r.Overlaps, "sections that overlap another"},
		{r.LostUpdates, "lost updates of a protected counter"},
		{r.TokenRegressions, "fencing tokens that went back"},
		{r.LeakedNodes, "znodes left behind"},
		{r.Stuck, "goroutines stuck in Acquire"},
		{r.DeadWorkers, "workers that died"},
	}...) {
		if v.n != 0 {
			found = append(found, fmt.Sprint(v.n, " ", v.what))
		}
	}
	if r.Acquisitions == 0 {
		found = append(found, "nothing was acquired")
	}
	return found
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
