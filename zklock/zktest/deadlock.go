package zktest

import (
	"runtime/debug"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// The time loaded is on the wall clock, because no bubble runs when the package is loaded.
var loaded = time.Now().Round(0)

// A bubble detects a deadlock only if all of its goroutines are blocked. Heartbeats of sessions prevent that, so a deadlock of locks panics
// here instead.
func init() {
	second.Deadlock = func(what string) {
		if time.Now().Round(0).Sub(loaded) < -apart {
			debug.SetTraceback("all")
			panic("zktest: deadlock: a wait behind a hold of its own process has lasted for a day: " + what)
		}
	}
}
