package clock

import (
	"syscall"
	"time"
	"unsafe"
)

// These are the clock numbers of include/uapi/linux/time.h.
const (
	clockMonotonic = 1
	clockBoottime  = 7
)

// asleep returns how long this machine has slept since an arbitrary start. CLOCK_BOOTTIME is like CLOCK_MONOTONIC, but "also includes any
// time that the system is suspended" (clock_gettime(2)). Setting the wall clock changes neither of them. If a sandbox does not allow a
// process to read one of these clocks, asleep returns 0.
func asleep() time.Duration {
	for {
		before, ok := read(clockMonotonic)
		boottime, too := read(clockBoottime)
		after, _ := read(clockMonotonic)
		switch {
		case !ok || !too:
			return 0
		case after-before < time.Millisecond: // otherwise this thread was paused between the readings, and the loop reads again
			return boottime - before
		}
	}
}

func read(id uintptr) (time.Duration, bool) {
	var t syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&t)), 0)
	return time.Duration(t.Nano()), errno == 0
}
