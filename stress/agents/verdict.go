package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tierlock/tierlock/stress/internal/report"
)

// verdict has the findings of the judge in the records of the clients, and the faults of the agents.
type verdict struct {
	*report.Result
	Other []string
}

func (v *verdict) violated(format string, args ...any) {
	v.Other = append(v.Other, fmt.Sprintf(format, args...))
}

func (v *verdict) violations() []string { return append(v.Violations(), v.Other...) }

// String returns the figures and the violations.
func (v *verdict) String() string {
	var faults []string
	for _, kind := range slices.Sorted(maps.Keys(v.Chaos.Faults)) {
		faults = append(faults, fmt.Sprintf("%s %d", kind, v.Chaos.Faults[kind]))
	}
	c := v.Chaos
	text := fmt.Sprintf("%d acquisitions (%.0f/s, Jain %.3f), longest gap %.1fs; %s; %d overlaps, %d with a holder that had lost the lock; "+
		"%d holds lost, %d holders stopped, %d of them lost; %d writes with a token, %d refused, %d tokens went back, %d updates lost; "+
		"%d left in the store; errors %v: ", v.Acquisitions, v.PerSecond, v.Jain, float64(c.LongestGap)/1e9, strings.Join(faults, ", "),
		v.Overlaps, c.WouldBeOverlaps, v.Lost, c.StoppedHolders, c.StoppedAndLost, c.FencedWrites, c.FencedRefused, v.TokenRegressions,
		v.LostUpdates, v.LeakedNodes, v.Errors)
	if found := v.violations(); len(found) > 0 {
		return text + "FAIL: " + strings.Join(found, "; ")
	}
	return text + "PASS"
}
