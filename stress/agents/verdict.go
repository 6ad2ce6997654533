package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tierlock/tierlock/stress/internal/evidence"
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

	long, kept int // sections that outlast the lease and that no fault has hit, and those at whose end the client had the lock
}

const (
	// One section in longEvery is long, which takes about half of the time.
	longEvery = 40
	// manyLong is the number of long sections in a language after which one must have kept the lock. On a busy machine, a client may lose the
	// lock in some of them, because it renews its hold too late.
	manyLong = 4
)

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

// renewals looks at the long sections of the clients in each language, without those that a fault has disturbed. If there are many and
// none has kept the lock for a lease, clients in that language do not renew their holds, which is a violation.
func (v *verdict) renewals(clients []*client, holds []evidence.Hold, lease time.Duration, disturbed func(evidence.Hold) bool) {
	for _, h := range holds {
		if !h.Long || h.Over == 0 || disturbed(h) {
			continue
		}
		language := clients[evidence.SlotOf(h.Process, len(clients))].program.language
		t := &v.ByLanguage[slices.IndexFunc(v.ByLanguage, func(t tally) bool { return t.language == language })]
		t.long++
		if !h.Lost && h.Valid.Sub(h.Got) >= lease {
			t.kept++
		}
	}
	for _, t := range v.ByLanguage {
		if t.long >= manyLong && t.kept == 0 {
			v.violated("clients in %s lost the lock in each of %d sections longer than the lease, without a fault", t.language, t.long)
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
	var languages, renewed []string
	for _, t := range v.ByLanguage {
		languages = append(languages, fmt.Sprintf("%s %d", t.language, t.acquisitions))
		renewed = append(renewed, fmt.Sprintf("%s %d of %d", t.language, t.kept, t.long))
	}
	if len(languages) == 1 {
		languages = []string{v.ByLanguage[0].language + " alone"}
	}
	c := v.Chaos
	text := fmt.Sprintf("%d acquisitions by clients in %s (%.0f/s, Jain %.3f), longest gap %.1fs; %s; "+
		"%d overlaps, %d with a holder that had lost the lock; %d holds lost, %d holders stopped, %d of them lost; "+
		"%s long sections kept the lock; "+
		"%d writes with a token, %d refused, %d tokens went back, %d updates lost; %d left in the store; errors %v: ",
		v.Acquisitions, strings.Join(languages, ", "), v.PerSecond, v.Jain, float64(c.LongestGap)/1e9, strings.Join(faults, ", "),
		v.Overlaps, c.WouldBeOverlaps, v.Lost, c.StoppedHolders, c.StoppedAndLost,
		strings.Join(renewed, ", "),
		c.FencedWrites, c.FencedRefused, v.TokenRegressions, v.LostUpdates, v.LeakedNodes, v.Errors)
	if found := v.violations(); len(found) > 0 {
		return text + "FAIL: " + strings.Join(found, "; ")
	}
	return text + "PASS"
}
