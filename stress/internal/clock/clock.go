// Package clock reads the one clock that all processes of a machine share, so that what
// they did can be put in order.
package clock

import (
	"sync"
	"time"
)

// Instant is a time on the machine's monotonic clock, in nanoseconds.
type Instant int64

// Add returns the instant d later.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Sub returns the time from j to i.
func (i Instant) Sub(j Instant) time.Duration { return time.Duration(i - j) }

// origin is the same moment on two clocks: that of the machine, which takes a system call to read, and that of package time, which takes
// none.
var origin = sync.OnceValue(align)

type alignment struct {
	wall time.Time
	at   Instant
}

// align reads both clocks in turn several times and returns the closest pair, which had the fewest interruptions in between.
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

// Tick returns Now to within a few microseconds, without the system call.
func Tick() Instant {
	o := origin()
	return o.at.Add(time.Since(o.wall))
}

// Sleep waits for d, or less if end is closed before.
func Sleep(d time.Duration, end <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-end:
	case <-timer.C:
	}
}
