package judge

import (
	"time"

	"github.com/tierlock/tierlock/stress/internal/report"
)

// leastHandOff is the budget of package tier if nobody sets one, or less than one that is measured.
const leastHandOff = 20 * time.Millisecond

// AwayBound is how long the lock lets a process of the run wait for the others at most,
// a budget, two sections and one hand-over for each; false if it promises nothing. What
// a section and a hand-over take is as measured: the mean, and the longest. A budget of
// nil is the lock's default: 19 times the median of what a process has measured of late, rounded up by 9 %
// at most, and so less than that of what 99 of 100 hand-overs took.
func AwayBound(r *report.Result, handOff *time.Duration) (time.Duration, bool) {
	if r.Lock != "mutex" || r.Away == nil || r.Procs < 2 || r.Acquisitions == 0 {
		return 0, false
	}
	budget := max(leastHandOff, 21*time.Duration(r.HandOver.P99))
	if handOff != nil {
		budget = *handOff
	}
	if budget > 0 {
		budget = max(budget, time.Duration(r.RTT)) // of the look that shows who waits
	}
	section := time.Duration(r.Busy * float64(r.Duration) / float64(r.Acquisitions))
	return time.Duration(r.Procs-1) * (budget + 2*section + time.Duration(r.HandOver.Max)), true
}
