// Package evidence is what the sections of a run leave for the judge: registers in memory
// that the processes share, a fence outside of them, a journal of holds, and each
// worker's tally. Nothing in it asks the store: it trusts the memory, the kernel and the
// clock of this machine.
package evidence

import (
	"time"

	"github.com/tierlock/tierlock/stress/internal/durations"
)

// Tally is what one worker found.
type Tally struct {
	Elapsed     time.Duration
	InSection   time.Duration
	Sections    []int64 // completed, per path
	Late        int64   // acquisitions after the end, which did nothing
	Overlaps    int64
	Regressions int64
	Stuck       int64
	Lost        int64
	Errors      map[string]int64
	Wait        *durations.Snapshot
	Release     *durations.Snapshot
	HandOver    *durations.Snapshot
	Away        *durations.Snapshot
}
