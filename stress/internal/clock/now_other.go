//go:build !unix

package clock

// Now panics, because without a clock that all processes share, events cannot be ordered.
func Now() Instant { panic("clock: only on Unix do we know a clock that all processes share") }
