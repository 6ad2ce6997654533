package judge

import (
	"time"

	"github.com/tierlock/tierlock/stress/internal/durations"
	"github.com/tierlock/tierlock/stress/internal/report"
)

// defaultHandOff is the default budget of package tier.
const defaultHandOff = 20 * time.Millisecond

// Promises reports whether the lock of a run bounds how long a process waits for it: it does for a mutex that several processes want all
// the time.
func Promises(r *report.Result) bool {
	return r.Lock == "mutex" && r.Procs > 1 && r.Paths == 1 && r.Think == 0
}

// BoundAbsence compares the times for which processes were without the lock with the bound I11: for each other process a budget, two
// sections and one transfer. The section is the mean one of the run. Transfers are measured before the run: if those of the run counted,
// slow ones would excuse themselves. A nil budget means the default.
//
// The verdict depends on 99 of 100 absences, because the machine may stop a process for a moment. If the machine is busy with other
// programs, or if there are fewer absences, the bound is only reported.
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
