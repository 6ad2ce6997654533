package clock

import (
	"encoding/binary"
	"syscall"
	"time"
)

// begun is the first reading of both clocks.
var begun = time.Now()

// asleep returns how long this machine has slept since begun. It computes by how much more the wall clock has moved than the monotonic
// clock, and subtracts what comes from setting the wall clock.
//
// On macOS, CLOCK_MONOTONIC and mach_continuous_time count sleep. Functions of libSystem read them, and there are no system calls for that.
// A package outside of the standard library therefore needs assembly to read them. But CLOCK_MONOTONIC is gettimeofday minus kern.boottime
// (Libc, gen/clock_gettime.c), and the syscall package can read kern.boottime. When the wall clock is set, the kernel changes kern.boottime
// by the same amount (xnu, osfmk/kern/clock.c, clock_set_calendar_microtime). If the wall clock is only made to run faster, the difference
// counts as sleep. It is less than a thousandth of a lease.
func asleep() time.Duration {
	for {
		before, ok := boottime()
		now := time.Now()
		after, too := boottime()
		switch {
		case !ok || !too:
			return 0
		case before == after: // otherwise the wall clock was set between the two readings, and the loop reads again
			return time.Duration(now.UnixNano()-before) - now.Sub(begun)
		}
	}
}

// boottime returns the time of day at which this machine was started, in nanoseconds. The kernel returns a struct timeval: 8 bytes of
// seconds, 4 bytes of microseconds, and 4 bytes of padding. [syscall.Sysctl] treats it as a string, and drops the last byte if that is 0.
func boottime() (nanoseconds int64, ok bool) {
	value, err := syscall.Sysctl("kern.boottime")
	if err != nil || len(value) < 12 {
		return 0, false
	}
	seconds, micros := binary.LittleEndian.Uint64([]byte(value)), binary.LittleEndian.Uint32([]byte(value[8:]))
	return int64(seconds)*int64(time.Second) + int64(micros)*int64(time.Microsecond), true
}
