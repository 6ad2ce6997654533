package clock

import "time"

// asleep returns 0, because on Windows Go's monotonic clock already counts sleep. The Go runtime reads the interrupt time in
// KUSER_SHARED_DATA (runtime/sys_windows_amd64.s). Windows adds the time of sleep to the interrupt time. QueryUnbiasedInterruptTime would
// leave the sleep out. Go 1.14 nearly changed to that function, but did not (golang.org/issue/35482).
func asleep() time.Duration { return 0 }
