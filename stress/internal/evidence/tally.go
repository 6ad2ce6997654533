// Package evidence collects the data by which a run is judged: registers in shared memory, a fence in another process, a journal of
// holds, and each worker's tally. None of it asks the store: it relies on the memory, the kernel and the clock of this machine.
package evidence

import (
	"time"

	"github.com/tierlock/tierlock/stress/internal/durations"
)

// Tally is what one worker has counted.
type Tally struct {
	Elapsed     time.Duration
	InSection   time.Duration
	Used        time.Duration // the same, but times what a section weighs if that is not for everybody
	Sections    []int64       // completed, per path
	Shared      []int64       // those of them that others may have been beside
	Goroutines  []int64       // sections that each has completed
	Packets     int64         // exchanged with PostgreSQL, whose servers do not count them
	Late        int64         // acquisitions after the end, which did nothing
	Overlaps    int64
	Torn        int64 // sections that saw the counter change
	Regressions int64
	Stuck       int64
	Lost        int64
	Errors      map[string]int64
	Wait        *durations.Snapshot // of sections that were alone
	SharedWait  *durations.Snapshot // of the others
	Release     *durations.Snapshot
	HandOver    *durations.Snapshot
	Away        *durations.Snapshot
}
