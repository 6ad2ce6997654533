// Package evidence collects the data by which a run is judged: registers in shared memory, a fence in another process, a journal of
// holds, and the tally of each worker. Nothing of this depends on the store. It depends on the memory, the kernel and the clock of this
// machine.
package evidence

import (
	"time"

	"github.com/tierlock/tierlock/stress/internal/durations"
)

// Tally has the counts of one worker.
type Tally struct {
	Elapsed     time.Duration
	InSection   time.Duration
	Used        time.Duration // InSection, with each time multiplied by the weight of its section; 0 for a lock with unlimited holders
	Sections    []int64       // number of completed sections on each path
	Shared      []int64       // number of those sections that others could share
	Goroutines  []int64       // number of completed sections of each goroutine
	Packets     int64         // packets from and to PostgreSQL, whose servers do not count them
	Late        int64         // acquisitions after the end of the run, which were released at once
	Overlaps    int64
	Torn        int64 // sections during which the counter has changed
	Regressions int64
	Stuck       int64
	Lost        int64
	Errors      map[string]int64
	Wait        *durations.Snapshot // of sections that were alone
	SharedWait  *durations.Snapshot // of all other sections
	Release     *durations.Snapshot
	HandOver    *durations.Snapshot
	Away        *durations.Snapshot
}
