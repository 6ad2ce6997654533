package zktest

import (
	"runtime/debug"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// loaded is on the wall clock, because no bubble has started yet.
var loaded = time.Now().Round(0)

// In a bubble the heartbeats of sessions go on whatever the test waits for, so the bubble itself detects no deadlock of locks.
func init() {
	second.Deadlock = func(what string) {
		if time.Now().Round(0).Sub(loaded) < -apart {
			debug.SetTraceback("all")
			panic("zktest: deadlock: a wait behind a hold of its own process has lasted for a day: " + what)
		}
	}
}
