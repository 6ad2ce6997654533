//go:build unix

package clock

import "golang.org/x/sys/unix"

// Now returns the time on the clock of the machine.
func Now() Instant {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // fails only if the clock does not exist
	return Instant(t.Nano())
}
