//go:build !unix

package clock

// Now panics on this system. Without a clock that all processes share, their events cannot be put in order.
func Now() Instant { panic("clock: only on Unix do we know a clock that all processes share") }
