package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// instant is a time on the machine's monotonic clock, in nanoseconds. All processes of
// the machine share it.
type instant int64

func now() instant {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // fails only for a clock that does not exist
	return instant(t.Nano())
}

func (i instant) sub(j instant) time.Duration { return time.Duration(i - j) }
