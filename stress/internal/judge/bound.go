package judge

import (
	"time"

	"github.com/tierlock/tierlock/stress/internal/durations"
	"github.com/tierlock/tierlock/stress/internal/report"
)

// defaultHandOff is the budget of package tier if nobody sets one.
const defaultHandOff = 20 * time.Millisecond

// Promises reports whether the lock of a run bounds how long a process is without it: a mutex that several processes want all the time.
func Promises(r *report.Result) bool {
	return r.Lock == "mutex" && r.Procs > 1 && r.Paths == 1 && r.Think == 0
}

// BoundAbsence holds the times that processes were without the lock against what it promises, I11: for each other process a budget, two
// sections and one transfer. A section is the mean one of the run. Transfers were measured before it: its own slowest ones would excuse
// whatever delays them. A budget of nil is the lock's default.
//
// The verdict depends on 99 of 100 absences, as the machine may stop a process for a moment. Where it is busy with something else, or there
// are fewer absences, the bound is only reported.
func BoundAbsence(r *report.Result, handOff *time.Duration, transfers durations.Quantiles, quiet bool) {
	if r.Away == nil || r.Acquisitions == 0 || transfers.Max == 0 {
		return
	}
	budget, transfer := defaultHandOff, time.Duration(transfers.Max)
	if handOff != nil {
		budget = *handOff
	}
	if budget > 0 {
		budget = max(budget, transfer) // the look that shows who waits takes as long
	}
	section := time.Duration(r.Busy * float64(r.Duration) / float64(r.Acquisitions))
	r.Transfer = transfers.Max
	r.AwayBound = (time.Duration(r.Procs-1) * (budget + 2*section + transfer)).Nanoseconds()
	r.AwayJudged = quiet && r.Absences >= 100
	r.Decide()
}
