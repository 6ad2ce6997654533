package main

import (
	"math"
	"time"

	"github.com/anishathalye/porcupine"
)

// Chaos is what a run with faults found beyond the rest. Durations are in nanoseconds.
type Chaos struct {
	SessionTimeout int64            `json:"session_timeout_ns"`
	Faults         map[string]int64 `json:"faults"`

	Reentries       int64 `json:"reentries"`
	StoppedHolders  int64 `json:"stopped_holders"`   // holds whose process was stopped and continued
	StoppedAndLost  int64 `json:"stopped_and_lost"`  // those that found the lock lost
	LateErrMissing  int64 `json:"late_err_missing"`  // looks that found no loss though the lease was over
	WouldBeOverlaps int64 `json:"would_be_overlaps"` // sections that met a late holder, or were one: the fence's business

	FencedWrites        int64 `json:"fenced_writes"`
	FencedRefused       int64 `json:"fenced_refused"`
	UnfencedLostUpdates int64 `json:"unfenced_lost_updates"` // what the same writes did to a register without a fence

	AfterFaults int64  `json:"acquisitions_after_faults"` // of the path that had the fewest
	LongestGap  int64  `json:"longest_gap_ns"`            // between two acquisitions of a path
	Stalls      int64  `json:"stalls"`                    // gaps that no fault explains
	Unhealed    int64  `json:"unhealed"`                  // faults that could not be undone
	Interrupted bool   `json:"interrupted"`               // so that there was no time to recover
	History     string `json:"history"`                   // Ok, Illegal, or Unknown when checking took too long
}

// checkingTime bounds the search for a legal order of the history.
const checkingTime = 20 * time.Second

// evidence is what a run with faults is judged by.
type evidence struct {
	cfg                Config
	begin, healed, end instant
	interrupted        bool
	holds              []hold
	diary              *diary
	fence              fenceTotal
	reports            []*report // of the last worker of each slot
	deaths             int64     // of workers before them, by themselves
	leaked             int64
}

func (e *evidence) judge() *Result {
	cfg, timeout := e.cfg, e.cfg.SessionTimeout
	c := &Chaos{
		SessionTimeout: timeout.Nanoseconds(), Faults: e.diary.counts, Unhealed: int64(len(e.diary.errors)),
		FencedWrites: e.fence.accepted, FencedRefused: e.fence.refused, UnfencedLostUpdates: e.fence.lostUnfenced,
		AfterFaults: math.MaxInt64, History: string(porcupine.Ok), Interrupted: e.interrupted,
	}
	r := &Result{
		Lock: cfg.Lock, Procs: cfg.Procs, Goroutines: cfg.Goroutines, Paths: cfg.Paths,
		Section: cfg.Section.Nanoseconds(), Think: cfg.Think.Nanoseconds(), RTT: cfg.RTT.Nanoseconds(), Seed: cfg.Seed,
		LeakedNodes: e.leaked, LostUpdates: e.fence.lostFenced, TokenRegressions: e.fence.regressions, Chaos: c,
	}
	r.count(e)
	deadline := time.Now().Add(checkingTime)
	for _, all := range perPath(e.holds, cfg.Paths) {
		late, unexplained := meetings(all)
		path := ours(all)
		c.WouldBeOverlaps += late
		r.Overlaps += unexplained + overlaps(path)
		n, gap := stalls(path, e.begin, e.end, e.diary.disturbances, timeout+recoveryAmong)
		c.Stalls += n
		c.LongestGap = max(c.LongestGap, gap.Nanoseconds())
		c.AfterFaults = min(c.AfterFaults, countSince(path, e.healed))
		if verdict := checkHistory(path, deadline); c.History != string(porcupine.Illegal) && verdict != porcupine.Ok {
			c.History = string(verdict)
		}
	}
	// By default a third of the session timeout is no part of the lease.
	c.StoppedHolders, c.StoppedAndLost, c.LateErrMissing = stopped(e.holds, e.diary.stops, timeout-timeout/3)
	for _, h := range e.holds {
		c.LateErrMissing += count(h.Blind)
		c.Reentries += int64(len(h.Nested))
	}
	r.decide()
	return r
}

// violations are those that only faults can bring about; c is nil without.
func (c *Chaos) violations() []violation {
	if c == nil {
		return nil
	}
	v := []violation{
		{c.LateErrMissing, "looks at a hold that saw no loss though its lease was over"},
		{c.Unhealed, "faults that could not be undone"},
		{count(c.History == string(porcupine.Illegal)), "illegal history"},
	}
	if !c.Interrupted {
		v = append(v,
			violation{count(c.AfterFaults == 0), "lock path that was not acquired after the last fault"},
			violation{c.Stalls, "times that a path was not acquired for longer than the faults explain"})
	}
	return v
}

// count adds what any run has: throughput, waits and the reports of the workers. Those
// of killed workers are in the holds alone.
func (r *Result) count(e *evidence) {
	r.PerProcess = make([]int64, r.Procs)
	waits := newHistogram()
	var inSection time.Duration
	for _, h := range e.holds {
		r.Acquisitions++
		r.PerProcess[slotOf(h.Process, r.Procs)]++
		r.Lost += count(h.Lost)
		keep(waits, h.Got.sub(h.Asked))
		if h.Over != 0 {
			inSection += h.Left.sub(h.Got)
		}
	}
	r.Errors = map[string]int64{}
	for _, err := range e.diary.errors {
		r.Errors[err.Error()]++
	}
	r.DeadWorkers = e.deaths
	for _, w := range e.reports {
		if w == nil {
			r.DeadWorkers++
			continue
		}
		r.Stuck += w.Stuck
		for kind, n := range w.Errors {
			r.Errors[kind] += n
		}
	}
	elapsed := e.end.sub(e.begin)
	r.Duration = elapsed.Nanoseconds()
	r.PerSecond = float64(r.Acquisitions) / elapsed.Seconds()
	r.Busy = inSection.Seconds() / elapsed.Seconds() / float64(r.Paths)
	r.Jain = jain(r.PerProcess)
	r.Wait, r.Curve = quantilesOf(waits), curveOf(waits)
}
