package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Chaos is the part of a result that only a run with faults has. Durations are in nanoseconds.
type Chaos struct {
	SessionTimeout int64            `json:"session_timeout_ns"`
	Faults         map[string]int64 `json:"faults"`

	Reentries       int64 `json:"reentries"`
	StoppedHolders  int64 `json:"stopped_holders"`   // holds whose process was paused and resumed
	StoppedAndLost  int64 `json:"stopped_and_lost"`  // stopped holds whose holder found the lock lost
	LateErrMissing  int64 `json:"late_err_missing"`  // checks and releases that found no loss although the lease had ended
	WouldBeOverlaps int64 `json:"would_be_overlaps"` // sections that overlap the section of a late holder; the fence has to prevent harm

	FencedWrites        int64 `json:"fenced_writes"`
	FencedRefused       int64 `json:"fenced_refused"`
	UnfencedLostUpdates int64 `json:"unfenced_lost_updates"` // lost updates that the same writes caused in a register without a fence

	GuardedWrites  int64 `json:"guarded_writes,omitempty"`
	GuardedRefused int64 `json:"guarded_refused,omitempty"`
	GuardedLate    int64 `json:"guarded_late,omitempty"` // guarded writes that were committed while another holder had the lock

	AfterFaults int64  `json:"acquisitions_after_faults"` // acquisitions of the path that had the fewest
	LongestGap  int64  `json:"longest_gap_ns"`            // the longest time between two acquisitions of a path
	Stalls      int64  `json:"stalls"`                    // gaps that are longer than the faults explain
	Unhealed    int64  `json:"unhealed"`                  // faults that could not be undone
	Interrupted bool   `json:"interrupted"`               // the run was interrupted, and there was no time to recover
	History     string `json:"history"`                   // Ok, Illegal, or Unknown if the check took too long
	Drawing     string `json:"history_drawing,omitempty"` // the file with a picture of the illegal part
	Events      int64  `json:"events"`                    // events between the processes and the store that were checked
	Impossible  string `json:"impossible,omitempty"`      // the first event that is impossible in every order
	Undecided   string `json:"undecided,omitempty"`       // there were too many orders: the first event that none of the tried ones explains
}

// Illegal reports whether the history has no legal order.
func (c *Chaos) Illegal() bool { return c.History == "Illegal" }

// violations returns the violations that only a run with faults can have. In a run without faults, c is nil and there are none.
func (c *Chaos) violations() []violation {
	if c == nil {
		return nil
	}
	v := []violation{
		{c.LateErrMissing, "looks at a hold that saw no loss though its lease was over, or releases that reported none"},
		{c.GuardedLate, "guarded writes in another's turn"},
		{c.Unhealed, "faults that could not be undone"},
	}
	if c.Illegal() {
		v = append(v, violation{1, "illegal history"})
	}
	if c.Impossible != "" {
		v = append(v, violation{1, "event that cannot be"})
	}
	if c.Interrupted {
		return v
	}
	if c.AfterFaults == 0 {
		v = append(v, violation{1, "lock path that was not acquired after the last fault"})
	}
	return append(v, violation{c.Stalls, "times that a path was not acquired for longer than the faults explain"})
}

// rows writes the rows that only a run with faults has.
func (c *Chaos) rows(row func(name, format string, args ...any)) {
	var faults []string
	for _, kind := range slices.Sorted(maps.Keys(c.Faults)) {
		faults = append(faults, fmt.Sprintf("%s %d", kind, c.Faults[kind]))
	}
	row("faults", "%s; session timeout %v", strings.Join(faults, ", "), ns(c.SessionTimeout))
	row("stops", "%d holders stopped, %d found the lock lost, %d looks missed a loss",
		c.StoppedHolders, c.StoppedAndLost, c.LateErrMissing)
	row("fence", "%d writes, %d refused; without it: %d overlaps with a late holder, %d lost updates",
		c.FencedWrites, c.FencedRefused, c.WouldBeOverlaps, c.UnfencedLostUpdates)
	if c.GuardedWrites > 0 {
		row("guard", "%d guarded writes, %d refused, %d in another's turn", c.GuardedWrites, c.GuardedRefused, c.GuardedLate)
	}
	row("progress", "%d acquisitions on each path after the faults, longest gap %v, stalls %d",
		c.AfterFaults, ns(c.LongestGap), c.Stalls)
	if c.Events > 0 {
		row("trace", "%d events, %s", c.Events, cmp.Or(c.Impossible, c.Undecided, "in an order that the model explains"))
	}
	drawing := ""
	if c.Drawing != "" {
		drawing = ", drawn in " + c.Drawing
	}
	row("history", "%s, %d re-entries%s", c.History, c.Reentries, drawing)
}
