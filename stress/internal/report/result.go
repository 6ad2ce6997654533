// Package report contains the result of a run. It prints the result as JSON or as text. Package page draws charts of it.
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
	Zipf       float64 `json:"zipf,omitempty"` // the exponent with which paths were chosen; 0: all paths equally often
	Section    int64   `json:"cs_ns"`
	Think      int64   `json:"think_ns"`
	RTT        int64   `json:"rtt_ns"`      // added to the round trip of the network
	Duration   int64   `json:"duration_ns"` // the actual duration, which an interrupt makes shorter
	Seed       uint64  `json:"seed"`

	Reads   *float64 `json:"reads,omitempty"`   // for a reader/writer lock: the fraction of the acquisitions that read
	Permits int      `json:"permits,omitempty"` // for a semaphore: the number of its permits
	Weight  int      `json:"weight,omitempty"`  // for a semaphore: the most permits that an acquisition took

	Acquisitions int64   `json:"acquisitions"`
	Exchanged    int64   `json:"-"`                 // packets that the workers have counted themselves
	Late         int64   `json:"late_acquisitions"` // acquisitions that returned after the run, because some locks cannot be cancelled
	PerSecond    float64 `json:"per_second"`
	PerProcess   []int64 `json:"per_process"`
	Jain         float64 `json:"jain"`
	JainInside   float64 `json:"jain_goroutines"` // Jain's index over the goroutines of all processes
	Busy         float64 `json:"busy"`            // fraction of the time in which a path was in use; for a semaphore, fraction of its permits
	Inside       float64 `json:"inside"`          // the average number of sections that were in progress on a path

	Readers *Side `json:"readers,omitempty"` // for a reader/writer lock
	Writers *Side `json:"writers,omitempty"`

	Wait     durations.Quantiles  `json:"wait_ns"` // from the call of Acquire to its return
	Curve    []durations.Quantile `json:"wait_curve"`
	Release  *durations.Quantiles `json:"release_ns"`  // from the end of a section to the return of Release; null without an RTT
	HandOver durations.Quantiles  `json:"handover_ns"` // from the end of a section to the beginning of the next one, in another process
	// Away is how long processes were without the lock while others had it. It is null if the processes do not want the lock all the time.
	Away       *durations.Quantiles `json:"away_ns"`
	Absences   int64                `json:"absences,omitempty"`      // the number of times in Away
	AwayBound  int64                `json:"away_bound_ns,omitempty"` // the longest time for Away that the lock promises, 0 if it promises none
	AwayJudged bool                 `json:"away_judged,omitempty"`   // the run fails if fewer than 99 of 100 absences are within the bound
	Transfer   int64                `json:"transfer_ns,omitempty"`   // the longest transfer before the run

	Overlaps         int64 `json:"overlaps"`
	LostUpdates      int64 `json:"lost_updates"`
	TornReads        int64 `json:"torn_reads"` // sections of readers during which a writer has written
	TokenRegressions int64 `json:"token_regressions"`
	LeakedNodes      int64 `json:"leaked_nodes"` // nodes or keys that were left below the lock paths after all goroutines had released
	Stuck            int64 `json:"stuck"`        // goroutines that were in Acquire long after the end of its ctx
	DeadWorkers      int64 `json:"dead_workers"` // worker processes that have not reported

	Lost    int64            `json:"lost"`
	Errors  map[string]int64 `json:"errors"`
	Packets *float64         `json:"packets_per_acquisition"` // includes late acquisitions; null if a server does not report packets
	Writes  *float64         `json:"writes_per_acquisition"`  // to the log, late ones included; null if a server does not report them

	Chaos *Chaos `json:"chaos"` // null for a run without faults

	Environment *Environment `json:"environment,omitempty"`

	Baseline *Result `json:"baseline"`
	Ratio    float64 `json:"ratio"`   // the rate divided by the rate of the baseline; zero without a baseline
	Verdict  string  `json:"verdict"` // PASS or FAIL
}

// Side is the result of all readers or of all writers.
type Side struct {
	Acquisitions int64               `json:"acquisitions"`
	PerSecond    float64             `json:"per_second"`
	PerProcess   []int64             `json:"per_process"`
	Jain         float64             `json:"jain"`
	Wait         durations.Quantiles `json:"wait_ns"`
}

// Decide sets the verdict.
func (r *Result) Decide() {
	r.Verdict = "PASS"
	if len(r.Violations()) > 0 {
		r.Verdict = "FAIL"
	}
}

// Compare adds the result of another lock. It becomes the baseline of this result.
func (r *Result) Compare(baseline *Result) {
	r.Baseline = baseline
	if baseline.PerSecond > 0 {
		r.Ratio = r.PerSecond / baseline.PerSecond
	}
}

// violation says which promise was broken, and how often.
type violation struct {
	n    int64
	what string
}

// Violations returns the reasons why the run fails. If the run passes, there are none.
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
