package tier

import "sync/atomic"

// This file finds out for each path whether lingering pays. DESIGN.md states the bound on the waste.

// These constants say how the end of a lingering changes the credit of its path, and which limits the credit has.
const (
	useEarns   = 1       // this process has taken the lock again
	wasteEarns = -2      // another process has queued while the lock lingered
	mostCredit = 64      // the highest credit of a path
	newCredit  = 8       // the highest credit with which a new path starts
	noCredit   = -255    // after 255 releases without lingering, the lock lingers once
	mostKnown  = 1 << 12 // the number of remembered paths; when there would be more, all are forgotten
)

// The type credits has the credit of each path of a registry. The mutex of the registry guards its fields except lately.
type credits struct {
	known  map[lockKey]int32 // the credits of the paths that no goroutine uses at present
	lately atomic.Int32      // what all paths together have earned recently
}

func newCredits() *credits {
	all := &credits{known: make(map[lockKey]int32)}
	all.lately.Store(-wasteEarns) // a single wasted lingering must not stop lingering
	return all
}

// A credit is the balance of one path, guarded by the mutex of the path's cohort. If the balance is -n, the lock does not linger at the
// next n releases.
type credit struct {
	left   int32
	lately *atomic.Int32
}

// credits.of returns the credit of a path. An unknown path starts with what the other paths have earned recently.
func (all *credits) of(key lockKey) credit {
	left, known := all.known[key]
	if lately := all.lately.Load(); !known && lately >= 0 {
		left = min(lately, newCredit)
	} else if !known {
		left = noCredit
	}
	return credit{left, &all.lately}
}

// remember stores the credit of a path.
func (all *credits) remember(key lockKey, c credit) {
	if c == all.of(key) {
		return
	}
	if len(all.known) >= mostKnown {
		clear(all.known)
	}
	all.known[key] = c.left
}

// pays reports whether the lock should linger.
func (c *credit) pays() bool { return c.left >= 0 }

// The method passed is called after a release at which the lock did not linger.
func (c *credit) passed() {
	if c.left < 0 {
		c.left++
	}
}

// The method used is called when this process has acquired the lingering lock again.
func (c *credit) used() { c.learn(useEarns) }

// The method wasted is called when another process has ended the lingering.
func (c *credit) wasted() { c.learn(wasteEarns) }

func (c *credit) learn(earned int32) {
	before := c.lately.Load()
	after := min(max(before+earned, -mostCredit), mostCredit)
	if after != before { // in most cases they are equal, and no core writes to the shared variable
		c.lately.Store(after) // if two goroutines store at the same time, one result is lost, which does no harm
	}
	if c.left = min(c.left+earned, mostCredit); c.left < 0 || c.left == 0 && after < 0 {
		c.left = noCredit
	}
}
