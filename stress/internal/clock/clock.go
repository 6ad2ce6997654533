// Package clock reads the one clock that all processes of a machine share. With it, events of different processes can be put in order.
package clock

import (
	"sync"
	"time"
)

// Instant is a time on the machine's monotonic clock, in nanoseconds.
type Instant int64

// Add returns the instant that is d later than i.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Sub returns the time from j to i.
func (i Instant) Sub(j Instant) time.Duration { return time.Duration(i - j) }

// origin is one moment, read on two clocks: that of the machine, and that of package time. Only the clock of the machine costs a system
// call.
var origin = sync.OnceValue(align)

type alignment struct {
	wall time.Time
	at   Instant
}

// align reads both clocks several times, and returns the two readings that are closest together. These were interrupted least.
func align() (best alignment) {
	closest := time.Duration(1<<63 - 1)
	for range 20 {
		before := time.Now()
		at := Now()
		after := time.Now()
		if d := after.Sub(before); d < closest {
			closest = d
			best = alignment{before.Add(d / 2), at}
		}
	}
	return best
}

// Tick returns the same as Now, to within a few microseconds, but without a system call.
func Tick() Instant {
	o := origin()
	return o.at.Add(time.Since(o.wall))
}

// Sleep waits for d. It returns earlier if end is closed.
func Sleep(d time.Duration, end <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-end:
	case <-timer.C:
	}
}
