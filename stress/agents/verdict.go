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
	ByLanguage []tally
	Other      []string
}

// tally is how many times the clients in a language have acquired the lock.
type tally struct {
	language     string
	acquisitions int64
}

// languages counts the acquisitions of the clients in each language. A language without any is a violation: it was not tested.
func (v *verdict) languages(clients []*client) {
	for i, c := range clients {
		at := slices.IndexFunc(v.ByLanguage, func(t tally) bool { return t.language == c.program.language })
		if at < 0 {
			at, v.ByLanguage = len(v.ByLanguage), append(v.ByLanguage, tally{language: c.program.language})
		}
		v.ByLanguage[at].acquisitions += v.PerProcess[i]
	}
	for _, t := range v.ByLanguage {
		if t.acquisitions == 0 {
			v.violated("no client in %s has acquired the lock", t.language)
		}
	}
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
	var languages []string
	for _, t := range v.ByLanguage {
		languages = append(languages, fmt.Sprintf("%s %d", t.language, t.acquisitions))
	}
	if len(languages) == 1 {
		languages = []string{v.ByLanguage[0].language + " alone"}
	}
	c := v.Chaos
	text := fmt.Sprintf("%d acquisitions by clients in %s (%.0f/s, Jain %.3f), longest gap %.1fs; %s; "+
		"%d overlaps, %d with a holder that had lost the lock; %d holds lost, %d holders stopped, %d of them lost; "+
		"%d writes with a token, %d refused, %d tokens went back, %d updates lost; %d left in the store; errors %v: ",
		v.Acquisitions, strings.Join(languages, ", "), v.PerSecond, v.Jain, float64(c.LongestGap)/1e9, strings.Join(faults, ", "),
		v.Overlaps, c.WouldBeOverlaps, v.Lost, c.StoppedHolders, c.StoppedAndLost,
		c.FencedWrites, c.FencedRefused, v.TokenRegressions, v.LostUpdates, v.LeakedNodes, v.Errors)
	if found := v.violations(); len(found) > 0 {
		return text + "FAIL: " + strings.Join(found, "; ")
	}
	return text + "PASS"
}
