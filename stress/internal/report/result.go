// Package report has the result of a run and prints it, as JSON and as text. Package page draws it.
package report

import (
	"fmt"

	"github.com/tierlock/tierlock/stress/internal/durations"
)

// Result is the result of a run. Durations are in nanoseconds.
type Result struct {
	Store      string  `json:"store"`
	Lock       string  `json:"lock"`
	Procs      int     `json:"procs"`
	Goroutines int     `json:"goroutines"`
	Paths      int     `json:"paths"`
	Zipf       float64 `json:"zipf,omitempty"` // exponent of the choice of a path; 0: all alike
	Section    int64   `json:"cs_ns"`
	Think      int64   `json:"think_ns"`
	RTT        int64   `json:"rtt_ns"`      // added to that of the network
	Duration   int64   `json:"duration_ns"` // as run, which an interrupt makes shorter than asked for
	Seed       uint64  `json:"seed"`

	Reads   *float64 `json:"reads,omitempty"`   // share of the turns, of a reader/writer lock
	Permits int      `json:"permits,omitempty"` // of a semaphore
	Weight  int      `json:"weight,omitempty"`  // permits that a turn took at most

	Acquisitions int64   `json:"acquisitions"`
	Exchanged    int64   `json:"-"`                 // packets that the processes have counted themselves
	Late         int64   `json:"late_acquisitions"` // after the end of the run, by locks that cannot be stopped from it
	PerSecond    float64 `json:"per_second"`
	PerProcess   []int64 `json:"per_process"`
	Jain         float64 `json:"jain"`
	JainInside   float64 `json:"jain_goroutines"` // over the goroutines of all processes
	Busy         float64 `json:"busy"`            // share of the time in which a path was in its section; of a semaphore, of its permits
	Inside       float64 `json:"inside"`          // sections of a path at once, on average

	Readers *Side `json:"readers,omitempty"` // of a reader/writer lock
	Writers *Side `json:"writers,omitempty"`

	Wait     durations.Quantiles  `json:"wait_ns"` // from asking for the lock to having it
	Curve    []durations.Quantile `json:"wait_curve"`
	Release  *durations.Quantiles `json:"release_ns"`  // from the end of a section to the return of Release; null without an RTT
	HandOver durations.Quantiles  `json:"handover_ns"` // from the end of a section to the next one, in another process
	// Away is how long processes were without the lock while others had it. It is null in runs in which processes do not want the lock all
	// the time.
	Away       *durations.Quantiles `json:"away_ns"`
	Absences   int64                `json:"absences,omitempty"`      // how many these were
	AwayBound  int64                `json:"away_bound_ns,omitempty"` // what the lock promises of it, if it does
	AwayJudged bool                 `json:"away_judged,omitempty"`   // the run fails if 99 of 100 were not within the bound
	Transfer   int64                `json:"transfer_ns,omitempty"`   // the longest hand-over in strict order, before the run

	Overlaps         int64 `json:"overlaps"`
	LostUpdates      int64 `json:"lost_updates"`
	TornReads        int64 `json:"torn_reads"` // sections of readers during which a writer wrote
	TokenRegressions int64 `json:"token_regressions"`
	LeakedNodes      int64 `json:"leaked_nodes"` // nodes, or keys, below the lock paths once all goroutines had released
	Stuck            int64 `json:"stuck"`        // goroutines that Acquire kept long after the end of its ctx
	DeadWorkers      int64 `json:"dead_workers"` // processes without a report

	Lost    int64            `json:"lost"`
	Errors  map[string]int64 `json:"errors"`
	Packets *float64         `json:"packets_per_acquisition"` // late ones included; null if a server does not tell
	Writes  *float64         `json:"writes_per_acquisition"`  // to the log; likewise

	Chaos *Chaos `json:"chaos"` // null without faults

	Environment *Environment `json:"environment,omitempty"`

	Baseline *Result `json:"baseline"`
	Ratio    float64 `json:"ratio"`   // to the baseline's rate; zero without one
	Verdict  string  `json:"verdict"` // PASS or FAIL
}

// Side is the result of the readers, or of the writers.
type Side struct {
	Acquisitions int64               `json:"acquisitions"`
	PerSecond    float64             `json:"per_second"`
	PerProcess   []int64             `json:"per_process"`
	Jain         float64             `json:"jain"`
	Wait         durations.Quantiles `json:"wait_ns"`
}

// Decide reaches the verdict.
func (r *Result) Decide() {
	r.Verdict = "PASS"
	if len(r.Violations()) > 0 {
		r.Verdict = "FAIL"
	}
}

// Compare adds the result of another lock as the baseline.
func (r *Result) Compare(baseline *Result) {
	r.Baseline = baseline
	if baseline.PerSecond > 0 {
		r.Ratio = r.PerSecond / baseline.PerSecond
	}
}

// violation is a broken promise, and how often it was broken.
type violation struct {
	n    int64
	what string
}

// Violations returns why the run fails, and nothing if it passes.
func (r *Result) Violations() []string {
	var found []string
	for _, v := range append(r.Chaos.violations(), []violation{
		{r.Overlaps, "sections that overlap another"},
		{r.LostUpdates, "lost updates of a protected counter"},
		{r.TornReads, "reads that a write changed"},
		{r.TokenRegressions, "fencing tokens that went back"},
		{r.LeakedNodes, "nodes or keys left behind"},
		{r.Stuck, "goroutines stuck in Acquire"},
		{r.DeadWorkers, "workers that died"},
	}...) {
		if v.n != 0 {
			found = append(found, fmt.Sprint(v.n, " ", v.what))
		}
	}
	if r.AwayJudged && r.Away.P99 > r.AwayBound {
		found = append(found, fmt.Sprintf("processes were without the lock for %v, more than the %v that are due",
			ns(r.Away.P99), ns(r.AwayBound)))
	}
	if r.Acquisitions == 0 {
		found = append(found, "nothing was acquired")
	}
	return found
}
