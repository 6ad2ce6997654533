// Package clock is the clock of the leases: monotonic time that counts the sleep of the machine.
//
// A store counts a lease while the holder's machine sleeps. Go's monotonic clock may not: it reads CLOCK_MONOTONIC on Linux
// (runtime/sys_linux_amd64.s) and mach_absolute_time on macOS (runtime/sys_darwin.go), and both stand still during a suspend
// or a hibernation. A clock that counts sleep costs a system call to read, ten times as much as time.Now. But the wall clock counts
// sleep as well. Therefore a look at the clock compares the wall clock with the monotonic one, and asks the system about sleep only
// once their difference has moved. A step of the wall clock moves the difference, too; the system then answers that there was no sleep.
package clock

import (
	"sync/atomic"
	"time"
)

// tolerance is how far the difference of the two clocks may move before the system is asked. time.Now reads the clocks one after the
// other, and the margin of any lease is far longer. Several smaller moves add up, because the difference is compared with the one at the
// last query of the system.
const tolerance = int64(10 * time.Millisecond)

// glance is how long a timer may run. Timers stand still during sleep, and the first one that fires afterwards detects the sleep.
const glance = 250 * time.Millisecond

// A Clock tells the time since its origin. It never goes back.
type Clock struct {
	origin time.Time
	wall   int64         // the origin on the wall clock
	asleep time.Duration // what the system said of sleep at the origin

	moved   atomic.Int64 // the wall clock less the monotonic one, both since the origin, when the system was last asked
	slept   atomic.Int64 // the sleep since the origin, as far as it is known
	feigned atomic.Int64 // the sleep that a test pretends
}

// New returns a clock whose origin is now.
func New() *Clock {
	origin := time.Now()
	return &Clock{origin: origin, wall: origin.UnixNano(), asleep: asleep()}
}

// Now returns the time since the origin. Now takes no lock, allocates nothing, and makes a system call only after a jump.
func (c *Clock) Now() time.Duration {
	now := time.Now() // not by read, which is too large for the compiler to inline
	since := now.Sub(c.origin)
	moved, known := now.UnixNano()-c.wall-int64(since), c.moved.Load()
	if d := moved - known; d > tolerance || d < -tolerance {
		c.ask(moved, known)
	}
	return since + time.Duration(c.slept.Load())
}

// read returns the time since the origin on the monotonic clock, and by how much more the wall clock has moved.
func (c *Clock) read() (since time.Duration, moved int64) {
	now := time.Now()
	since = now.Sub(c.origin)
	return since, now.UnixNano() - c.wall - int64(since)
}

// Ask asks the system about sleep in any case. Now does not detect a sleep if the wall clock was set back by the same amount.
func (c *Clock) Ask() {
	_, moved := c.read()
	c.ask(moved, c.moved.Load())
}

func (c *Clock) ask(moved, known int64) {
	sleep := c.feigned.Load()
	if moved != 0 { // In virtual time the two clocks are one. The sleep of the real machine is none of the test's then.
		sleep += int64(asleep() - c.asleep)
	}
	for old := c.slept.Load(); sleep > old && !c.slept.CompareAndSwap(old, sleep); old = c.slept.Load() {
	}
	// This comes last: a goroutine that sees no move then also sees the sleep. If another goroutine was faster, the next check decides.
	c.moved.CompareAndSwap(known, moved)
}

// Time converts a time on the clock to a time of day, counted from now, because package time does not count the sleep in between.
func (c *Clock) Time(at time.Duration) time.Time {
	ago := c.Now() - at
	return time.Now().Add(-ago)
}

// Left returns for how long to set a timer for a time on the clock. It is less than what is left, because a timer stands still while the
// machine sleeps. When the timer fires, check the clock, and set the timer again if the time has not come.
func (c *Clock) Left(at time.Duration) time.Duration { return min(at-c.Now(), glance) }

// Suspend is for tests: the machine has slept for d.
func (c *Clock) Suspend(d time.Duration) {
	c.feigned.Add(int64(d))
	c.Step(d)
}

// Step is for tests: the wall clock has moved by d against the monotonic one.
func (c *Clock) Step(d time.Duration) { c.moved.Add(-int64(d)) }
