package clock

import "time"

// asleep returns 0, since on Windows Go's monotonic clock counts sleep. asleep reads the interrupt time in KUSER_SHARED_DATA
// (runtime/sys_windows_amd64.s), to which the system adds the time that it has slept. QueryUnbiasedInterruptTime subtracts it again. Go
// 1.14 nearly changed to the latter, and did not (golang.org/issue/35482).
func asleep() time.Duration { return 0 }
