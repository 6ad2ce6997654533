package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Chaos is the additional result of a run with faults. Durations are in nanoseconds.
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
	Drawing     string `json:"history_drawing,omitempty"` // file that shows what is illegal in it
	Events      int64  `json:"events"`                    // between processes and store, that were held against the model of one
	Impossible  string `json:"impossible,omitempty"`      // the first that no order explains
	Undecided   string `json:"undecided,omitempty"`       // the first that none explains of some orders, where there are too many
}

// Illegal reports whether no legal order explains the history.
func (c *Chaos) Illegal() bool { return c.History == "Illegal" }

// violations returns the violations that only faults can cause; c is nil in a run without faults.
func (c *Chaos) violations() []violation {
	if c == nil {
		return nil
	}
	v := []violation{
		{c.LateErrMissing, "looks at a hold that saw no loss though its lease was over"},
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

// rows writes the rows of a run with faults.
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
