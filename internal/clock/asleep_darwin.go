package clock

import (
	"encoding/binary"
	"syscall"
	"time"
)

// begun has a first reading of both clocks.
var begun = time.Now()

// asleep returns how long this machine has slept since begun: by how much more the wall clock has moved than the monotonic one, less the
// amount by which it was set.
//
// The clocks that count sleep, CLOCK_MONOTONIC and mach_continuous_time, are functions of libSystem and not system calls. A package
// outside of the standard library needs assembly to call them. The former is gettimeofday less kern.boottime (Libc, gen/clock_gettime.c),
// and the syscall package can read that. When the wall clock is set, the kernel moves kern.boottime along (xnu, osfmk/kern/clock.c,
// clock_set_calendar_microtime). If the wall clock is only made to run faster, that counts as sleep: less than a thousandth of a lease.
func asleep() time.Duration {
	for {
		before, ok := boottime()
		now := time.Now()
		after, too := boottime()
		switch {
		case !ok || !too:
			return 0
		case before == after: // else the wall clock was set in between
			return time.Duration(now.UnixNano()-before) - now.Sub(begun)
		}
	}
}

// boottime returns the time of day at which this machine was started, in nanoseconds. The value is a struct timeval: 8 bytes of
// seconds, 4 of microseconds, and 4 of padding. [syscall.Sysctl] takes it for a string, and drops the last byte if it is 0.
func boottime() (nanoseconds int64, ok bool) {
	value, err := syscall.Sysctl("kern.boottime")
	if err != nil || len(value) < 12 {
		return 0, false
	}
	seconds, micros := binary.LittleEndian.Uint64([]byte(value)), binary.LittleEndian.Uint32([]byte(value[8:]))
	return int64(seconds)*int64(time.Second) + int64(micros)*int64(time.Microsecond), true
}
