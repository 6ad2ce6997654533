package judge

import (
	"math"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/tierlock/tierlock/stress/internal/clock"
	"github.com/tierlock/tierlock/stress/internal/durations"
	"github.com/tierlock/tierlock/stress/internal/evidence"
	"github.com/tierlock/tierlock/stress/internal/report"
)

const (
	// checkingTime bounds the search for a legal order of the history.
	checkingTime = 20 * time.Second
	// recovery is what the lock may take to go on amid faults, on top of the session
	// timeout: connecting again, electing a leader, a busy machine.
	recovery = 5 * time.Second
)

// Case is what a run with faults is judged by.
type Case struct {
	SessionTimeout     time.Duration
	Lease              time.Duration // of a session; a holder that was stopped for longer must find its loss
	Begin, Healed, End clock.Instant // Healed is when the last fault was
	Interrupted        bool
	Holds              []evidence.Hold
	Faults             Faults
	Fence              evidence.Total
	Tallies            []*evidence.Tally // of the last worker of each slot, nil for one that died
	Deaths             int64             // of workers before them, by themselves
	Leaked             int64

	contradiction []evidence.Hold // of an illegal history
}

// Judge completes r, which says what the work was.
func (c *Case) Judge(r *report.Result) {
	found := &report.Chaos{
		SessionTimeout: c.SessionTimeout.Nanoseconds(), Faults: c.Faults.Counts, Unhealed: int64(len(c.Faults.Unhealed)),
		FencedWrites: c.Fence.Accepted, FencedRefused: c.Fence.Refused, UnfencedLostUpdates: c.Fence.LostUnfenced,
		AfterFaults: math.MaxInt64, History: string(porcupine.Ok), Interrupted: c.Interrupted,
	}
	r.Chaos = found
	r.LeakedNodes, r.LostUpdates, r.TokenRegressions = c.Leaked, c.Fence.LostFenced, c.Fence.Regressions
	c.count(r)
	deadline := time.Now().Add(checkingTime)
	for _, all := range perPath(c.Holds, r.Paths) {
		late, unexplained := meetings(all)
		path := ours(all)
		found.WouldBeOverlaps += late
		r.Overlaps += unexplained + overlaps(path)
		n, gap := stalls(path, c.Begin, c.End, c.Faults.Disturbances, c.SessionTimeout+recovery)
		found.Stalls += n
		found.LongestGap = max(found.LongestGap, gap.Nanoseconds())
		found.AfterFaults = min(found.AfterFaults, countSince(path, c.Healed))
		verdict, illegal := checkHistory(path, deadline)
		if found.History != string(porcupine.Illegal) && verdict != porcupine.Ok {
			found.History, c.contradiction = string(verdict), illegal
		}
	}
	found.StoppedHolders, found.StoppedAndLost, found.LateErrMissing = stopped(c.Holds, c.Faults.Stops, c.Lease)
	for _, h := range c.Holds {
		found.LateErrMissing += count(h.Blind)
		found.Reentries += int64(len(h.Nested))
	}
	r.Decide()
}

// count adds what any run has: throughput, waits and the tallies of the workers. Those
// of killed workers are in the holds alone.
func (c *Case) count(r *report.Result) {
	r.PerProcess = make([]int64, r.Procs)
	waits := durations.NewHistogram()
	var inSection time.Duration
	for _, h := range c.Holds {
		r.Acquisitions++
		r.PerProcess[evidence.SlotOf(h.Process, r.Procs)]++
		r.Lost += count(h.Lost)
		waits.Keep(h.Got.Sub(h.Asked))
		if h.Over != 0 {
			inSection += h.Left.Sub(h.Got)
		}
	}
	r.Errors = map[string]int64{}
	for _, err := range c.Faults.Unhealed {
		r.Errors[err.Error()]++
	}
	r.DeadWorkers = c.Deaths
	for _, w := range c.Tallies {
		if w == nil {
			r.DeadWorkers++
			continue
		}
		r.Stuck += w.Stuck
		for kind, n := range w.Errors {
			r.Errors[kind] += n
		}
	}
	elapsed := c.End.Sub(c.Begin)
	r.Duration = elapsed.Nanoseconds()
	r.PerSecond = float64(r.Acquisitions) / elapsed.Seconds()
	r.Busy = inSection.Seconds() / elapsed.Seconds() / float64(r.Paths)
	r.Jain = jain(r.PerProcess)
	r.Wait, r.Curve = waits.Quantiles(), waits.Curve()
}
