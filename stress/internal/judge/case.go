package judge

import (
	"math"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/tierlock/tierlock/stress/internal/clock"
	"github.com/tierlock/tierlock/stress/internal/evidence"
	"github.com/tierlock/tierlock/stress/internal/report"
	"github.com/tierlock/tierlock/stress/internal/rule"
)

// checkingTime limits the search for a legal order of the history.
const checkingTime = 20 * time.Second

// Recovery is how long the lock may take, after a fault, until it is acquired again, in addition to the session timeout. It allows for
// connecting, for an election, and for a busy machine.
const Recovery = 15 * time.Second

// Case is the evidence of a run with faults.
type Case struct {
	Rule               rule.Rule
	SessionTimeout     time.Duration
	Lease              time.Duration // the lease of a session; a holder that was paused for longer must notice the loss
	Begin, Healed, End clock.Instant // Healed is the time at which the last fault was undone
	Interrupted        bool
	Holds              []evidence.Hold
	Faults             Faults
	Fence              evidence.Total
	Tallies            []*evidence.Tally // of the last worker in each slot; nil for a worker that died
	Deaths             int64             // number of earlier workers that died without being killed
	Leaked             int64
	Events             int64 // number of recorded events between the processes and the store; 0 if nothing was recorded
	Impossible         error // the event that no store can have produced in any order
	Undecided          bool  // Impossible was not certain, since not all orders were tried

	contradiction []evidence.Hold // the illegal part of the history
}

// Judge fills in the results in r, which already describes the workload.
func (c *Case) Judge(r *report.Result) {
	found := &report.Chaos{
		SessionTimeout: c.SessionTimeout.Nanoseconds(), Faults: c.Faults.Counts, Unhealed: int64(len(c.Faults.Unhealed)),
		FencedWrites: c.Fence.Accepted, FencedRefused: c.Fence.Refused, UnfencedLostUpdates: c.Fence.LostUnfenced,
		AfterFaults: math.MaxInt64, History: string(porcupine.Ok), Interrupted: c.Interrupted, Events: c.Events,
	}
	switch {
	case c.Undecided:
		found.Undecided = c.Impossible.Error()
	case c.Impossible != nil:
		found.Impossible = c.Impossible.Error()
	}
	r.Chaos = found
	r.LeakedNodes, r.LostUpdates, r.TornReads, r.TokenRegressions = c.Leaked, c.Fence.LostFenced, c.Fence.Torn, c.Fence.Regressions
	c.bury()
	c.count(r)
	deadline := time.Now().Add(checkingTime)
	for _, all := range perPath(c.Holds, r.Paths) {
		late, unexplained := meetings(all, c.Rule.Room)
		path := ours(all)
		found.WouldBeOverlaps += late
		r.Overlaps += unexplained + overlaps(path, c.Rule.Room)
		for _, s := range c.Rule.Shares { // readers may not keep writers out, and writers may not keep readers out
			c.judgeProgress(found, ofWeight(path, s.Weight))
		}
		verdict, illegal := checkHistory(path, c.Rule.Room, deadline)
		if found.History != string(porcupine.Illegal) && verdict != porcupine.Ok {
			found.History, c.contradiction = string(verdict), illegal
		}
	}
	found.StoppedHolders, found.StoppedAndLost, found.LateErrMissing = stopped(c.Holds, c.Faults.Stops, c.Lease)
	for _, h := range c.Holds {
		found.LateErrMissing += count(h.Blind)
		found.GuardedWrites += count(h.Guarded.Written)
		found.GuardedRefused += count(h.Guarded.Refused)
		found.GuardedLate += h.Guarded.Late
		found.Reentries += int64(len(h.Nested))
	}
	r.Decide()
}

// The method bury ends the sections of processes that were killed. Otherwise their holds would explain all later meetings.
func (c *Case) bury() {
	for i, h := range c.Holds {
		if h.Left == 0 {
			c.Holds[i].Left = c.Faults.Deaths[h.Process]
		}
	}
}

// judgeProgress checks that there are no long gaps between the given holds of one path. The holds are in the order of Got.
func (c *Case) judgeProgress(found *report.Chaos, holds []evidence.Hold) {
	n, gap := stalls(holds, c.Begin, c.End, c.Faults.Disturbances, c.SessionTimeout+Recovery)
	found.Stalls += n
	found.LongestGap = max(found.LongestGap, gap.Nanoseconds())
	found.AfterFaults = min(found.AfterFaults, countSince(holds, c.Healed))
}

// Resumed reports whether each path was acquired after the last fault. For a reader/writer lock, both readers and writers have to
// acquire it.
func (c *Case) Resumed(paths int) bool {
	for _, holds := range perPath(c.Holds, paths) {
		for _, s := range c.Rule.Shares {
			if countSince(ofWeight(ours(holds), s.Weight), c.Healed) == 0 {
				return false
			}
		}
	}
	return true
}

// The method count fills in the part of the result that a run without faults has, too: throughput, waits and the tallies of the workers.
// A killed worker leaves no tally, so its sections are counted from the holds.
func (c *Case) count(r *report.Result) {
	t := newTotals(r.Procs)
	for _, h := range c.Holds {
		r.Lost += count(h.Lost)
		alone := c.Rule.Alone(h.Weight)
		t.turns(alone)[evidence.SlotOf(h.Process, r.Procs)]++
		t.waits(alone).Keep(h.Got.Sub(h.Asked))
		if h.Over != 0 {
			inside := h.Left.Sub(h.Got)
			t.inSection += inside
			t.used += c.Rule.Used(h.Weight, inside)
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
	t.report(r, c.Rule, c.End.Sub(c.Begin))
}
