package judge

import (
	"time"

	"github.com/tierlock/tierlock/stress/internal/durations"
	"github.com/tierlock/tierlock/stress/internal/report"
)

// defaultHandOff is the hand-off budget that package tier has by default.
const defaultHandOff = 20 * time.Millisecond

// Promises reports whether the lock of a run promises a bound on how long a process waits for it. A mutex does, if several processes want
// it all the time.
func Promises(r *report.Result) bool {
	return r.Lock == "mutex" && r.Procs > 1 && r.Paths == 1 && r.Think == 0
}

// BoundAbsence compares the times for which processes were without the lock with the bound of invariant I11. The bound is a sum over the
// other processes: for each of them a budget, two sections and one transfer. The length of a section is the mean of the run. The
// transfer time is measured before the run, because slow transfers in the run itself would raise the bound and so excuse themselves. A
// nil budget means the default.
//
// The verdict depends only on the shortest 99 of 100 absences, because the machine may stop a process for a moment. If the machine is
// busy with other programs, or if there are fewer than 100 absences, the bound is reported but not judged.
func BoundAbsence(r *report.Result, handOff *time.Duration, transfers durations.Quantiles, quiet bool) {
	if r.Away == nil || r.Acquisitions == 0 || transfers.Max == 0 {
		return
	}
	budget, transfer := defaultHandOff, time.Duration(transfers.Max)
	if handOff != nil {
		budget = *handOff
	}
	if budget > 0 {
		budget = max(budget, transfer) // the request that finds waiting processes takes as long
	}
	section := time.Duration(r.Busy * float64(r.Duration) / float64(r.Acquisitions))
	r.Transfer = transfers.Max
	r.AwayBound = (time.Duration(r.Procs-1) * (budget + 2*section + transfer)).Nanoseconds()
	r.AwayJudged = quiet && r.Absences >= 100
	r.Decide()
}
