// Package clock is the clock of the leases: monotonic time that counts the sleep of the machine.
//
// In a store, a lease runs on while the holder's machine sleeps. Go's monotonic clock may stand still during sleep: it reads
// CLOCK_MONOTONIC on Linux (runtime/sys_linux_amd64.s) and mach_absolute_time on macOS (runtime/sys_darwin.go). Both stop during a suspend
// or a hibernation. Some other clocks count sleep, but to read one takes a system call, which costs ten times as much as time.Now.
//
// The wall clock counts sleep as well. [Clock.Now] therefore compares the wall clock with the monotonic clock. It asks the system about
// sleep only if their difference has changed. If the wall clock was set, the difference has changed as well, but the system answers that
// there was no sleep.
package clock

import (
	"sync/atomic"
	"time"
)

// tolerance is how much the difference of the two clocks may change before the system is asked about sleep. It is not 0, because time.Now
// reads the clocks one after the other. It is far shorter than the margin of any lease. Smaller changes add up, because Now compares the
// difference with its value at the last question to the system.
const tolerance = int64(10 * time.Millisecond)

// glance is the longest time for which a timer is set. Timers stop during sleep. The first timer that fires after the sleep detects it.
const glance = 250 * time.Millisecond

// A Clock returns the time since its origin. That time never decreases.
type Clock struct {
	origin time.Time
	wall   int64         // the origin on the wall clock
	asleep time.Duration // the result of the function asleep at the origin

	moved   atomic.Int64 // wall clock minus monotonic clock, both counted from the origin, when the system was last asked
	slept   atomic.Int64 // how long the machine has slept since the origin, as far as known
	feigned atomic.Int64 // the sleep that a test simulates
}

// New returns a clock whose origin is now.
func New() *Clock {
	origin := time.Now()
	return &Clock{origin: origin, wall: origin.UnixNano(), asleep: asleep()}
}

// Now returns the time since the origin. It locks no mutex and allocates nothing. It asks the system only if one of the clocks has jumped.
func (c *Clock) Now() time.Duration {
	now := time.Now() // repeats the code of the method read, which is too large for the compiler to inline
	since := now.Sub(c.origin)
	moved, known := now.UnixNano()-c.wall-int64(since), c.moved.Load()
	if d := moved - known; d > tolerance || d < -tolerance {
		c.ask(moved, known)
	}
	return since + time.Duration(c.slept.Load())
}

// read returns the time since the origin on the monotonic clock. moved is by how much more the wall clock has moved since the origin.
func (c *Clock) read() (since time.Duration, moved int64) {
	now := time.Now()
	since = now.Sub(c.origin)
	return since, now.UnixNano() - c.wall - int64(since)
}

// Ask asks the system about sleep, even if the difference of the clocks has not changed. If the wall clock was set back by exactly the time
// that the machine slept, the method Now alone would not detect the sleep.
func (c *Clock) Ask() {
	_, moved := c.read()
	c.ask(moved, c.moved.Load())
}

func (c *Clock) ask(moved, known int64) {
	sleep := c.feigned.Load()
	if moved != 0 { // In virtual time moved is always 0, and the sleep of the real machine does not count.
		sleep += int64(asleep() - c.asleep)
	}
	for old := c.slept.Load(); sleep > old && !c.slept.CompareAndSwap(old, sleep); old = c.slept.Load() {
	}
	// The field moved is stored after the field slept. A goroutine that sees the new value of moved therefore also sees the new value of
	// slept. If another goroutine has stored moved in between, the next call of Now compares again.
	c.moved.CompareAndSwap(known, moved)
}

// Time converts a time on the clock to a time of day. It counts back from the present time of day, because a time.Time with a monotonic
// reading would not count sleep.
func (c *Clock) Time(at time.Duration) time.Time {
	ago := c.Now() - at
	return time.Now().Add(-ago)
}

// Left returns for how long to set a timer that waits for a time on the clock. A timer stops while the machine sleeps, so the result is
// never longer than glance. When the timer fires before that time on the clock, the caller sets it again.
func (c *Clock) Left(at time.Duration) time.Duration { return min(at-c.Now(), glance) }

// Suspend is for tests. It simulates that the machine has slept for d.
func (c *Clock) Suspend(d time.Duration) {
	c.feigned.Add(int64(d))
	c.Step(d)
}

// Step is for tests. It simulates that the wall clock was set forward by d.
func (c *Clock) Step(d time.Duration) { c.moved.Add(-int64(d)) }
