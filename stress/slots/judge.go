package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tierlock/tierlock/internal/test/oracle"
	"github.com/tierlock/tierlock/slots"
	"github.com/tierlock/tierlock/stress/internal/clock"
)

// ledger has the fields of the ledger of package slots that the judge compares.
type ledger struct {
	Slot    time.Time
	State   string
	Attempt int
	Token   int64
}

// An attempt is a run that began while its process had the lock.
type attempt struct {
	entry               // the beginning
	valid clock.Instant // the newest time at which the process is known to have had the lock
	ended bool          // the job has returned nil, or was about to
	done  bool          // the outcome is in the ledger
}

func (a *attempt) String() string {
	return fmt.Sprintf("%v attempt %d of process %d with token %d", a.Time.Format(time.StampMilli), a.Attempt, a.PID, a.Token)
}

// verdict is what the judge found in a log, and what the driver did to the processes.
type verdict struct {
	Slots, Runs  int
	Kills, Stops int
	Counts       map[slots.Kind]int
	Violations   []string
}

func (v *verdict) violated(format string, args ...any) {
	v.Violations = append(v.Violations, fmt.Sprintf(format, args...))
}

// String returns the figures, and the first ten violations.
func (v verdict) String() string {
	n := v.Counts
	text := fmt.Sprintf("%d slots in %d runs, %d retried, %d caught up, %d skipped; %d runs lost the lock; %d processes killed, "+
		"%d stopped: ", v.Slots, v.Runs, n[slots.Retried], n[slots.CaughtUp], n[slots.Skipped], n[cut], v.Kills, v.Stops)
	if len(v.Violations) == 0 {
		return text + "PASS"
	}
	first := strings.Join(v.Violations[:min(10, len(v.Violations))], "\n  ")
	return fmt.Sprintf("%sFAIL, %d violations, at first\n  %s", text, len(v.Violations), first)
}

// The method judge compares the log with the promises of package slots. Missed slots are caught up, and slots are retried after a crash.
func (v *verdict) judge(entries []entry, interval time.Duration, end ledger) {
	v.Counts = make(map[slots.Kind]int)
	attempts := v.attempts(entries)
	var tokens oracle.Tokens
	before := new(attempt)
	for i, a := range attempts {
		mark := oracle.Mark{Token: a.Token, Process: int64(a.PID)}
		if err := tokens.Judge(mark, true); err != nil {
			v.violated("%v: %v", a, err)
		}
		tokens = tokens.With(mark, true)
		for _, earlier := range attempts[:i] {
			if a.At < earlier.valid {
				v.violated("%v began while %v had the lock", a, earlier)
			}
		}
		again := a.Time.Equal(before.Time)
		if !again {
			v.Slots++
		}
		switch {
		case i == 0:
		case again && (before.done || a.Attempt <= before.Attempt):
			v.violated("%v began again after %v", a, before)
		case !again && !a.Time.Equal(before.Time.Add(interval)):
			v.violated("%v is not the slot after %v", a, before)
		case !again && !before.ended:
			v.violated("%v began, but %v was never retried", a, before)
		}
		before = a
	}
	v.Runs = len(attempts)
	if last := (ledger{before.Time, "done", before.Attempt, before.Token}); !end.Slot.Equal(last.Slot) || end.State != last.State ||
		end.Attempt != last.Attempt || end.Token != last.Token {
		v.violated("the ledger is %+v at the end, want %+v", end, last)
	}
}

// attempts returns the runs in the order of their beginnings, and counts the entries. A process may have been stopped before it wrote an
// entry. Therefore the order of the entries in the log is not the order of their times.
func (v *verdict) attempts(entries []entry) (all []*attempt) {
	type name struct {
		slot    int64
		attempt int
		token   int64
	}
	known := make(map[name]*attempt)
	for _, e := range entries {
		v.Counts[e.What] += max(e.Count, 1)
		this := name{e.Time.UnixNano(), e.Attempt, e.Token}
		a := known[this]
		switch {
		case e.What == slots.Skipped || e.What == slots.Failed:
			v.violated("%s: %+v", e.What, e)
		case e.What == began:
			known[this] = &attempt{entry: e, valid: e.At}
			all = append(all, known[this])
		case a == nil: // an event of a run that has recorded nothing, because its process had lost the lock before
		case e.What == cut:
			a.valid = e.At
		case e.What == ended:
			a.valid, a.ended = e.At, true
		case e.What == slots.Ran:
			a.done = true
		}
	}
	slices.SortStableFunc(all, func(a, b *attempt) int { return cmp.Compare(a.At, b.At) })
	return all
}
