//go:build !unix

package clock

// Now panics: nothing can be put in order here.
func Now() Instant { panic("clock: only on Unix do we know a clock that all processes share") }
