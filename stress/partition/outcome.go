package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// outcome is the result of one trial.
type outcome struct {
	Fault  string
	Number int    // the number of the trial among those of the same fault, from 1
	Choice string // the random choices in words
	Error  string // the reason if the trial shows nothing; then the fields below are not set

	// Both times are counted from the beginning of the fault.
	Lost     time.Duration // when the holder knew of the loss; if it never did, when the trial stopped waiting
	Acquired time.Duration // when the waiter had the lock
}

// margin returns how long the loss had been known when the waiter acquired the lock. It is negative for a breach.
func (o outcome) margin() time.Duration { return o.Acquired - o.Lost }

func (o outcome) breach() bool { return o.Error == "" && o.margin() < 0 }

func (o outcome) String() string {
	head := fmt.Sprintf("%-9s %2d: ", o.Fault, o.Number)
	if o.Error != "" {
		return head + fmt.Sprintf("no outcome: %s  %s", strings.ReplaceAll(o.Error, "\n", "; "), o.Choice)
	}
	line := head + fmt.Sprintf("margin %+.3f s, lost at %.3f, acquired at %.3f  %s",
		o.margin().Seconds(), o.Lost.Seconds(), o.Acquired.Seconds(), o.Choice)
	if o.breach() {
		line += "  BREACH"
	}
	return line
}

// summarize prints a summary of the trials. It reports whether each trial had an outcome and none was a breach.
func summarize(w io.Writer, faults []string, outcomes []outcome) bool {
	var trials, breaches int
	for _, f := range faults {
		var margins []time.Duration
		bad := 0
		for _, o := range outcomes {
			if o.Fault != f || o.Error != "" {
				continue
			}
			margins = append(margins, o.margin())
			if o.breach() {
				bad++
			}
		}
		if len(margins) == 0 {
			continue
		}
		slices.Sort(margins)
		fmt.Fprintf(w, "%-9s %d trials, %d breaches, margin min %+.3f s, median %+.3f s, max %+.3f s\n", f,
			len(margins), bad, margins[0].Seconds(), margins[len(margins)/2].Seconds(), margins[len(margins)-1].Seconds())
		trials += len(margins)
		breaches += bad
	}
	if dud := len(outcomes) - trials; dud > 0 {
		fmt.Fprintf(w, "%d trials without an outcome\n", dud)
	}
	fmt.Fprintf(w, "partition: %d trials, %d breaches\n", trials, breaches)
	return breaches == 0 && trials > 0 && trials == len(outcomes)
}
