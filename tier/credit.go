package tier

import "sync/atomic"

// This file learns for each path whether lingering pays. DESIGN.md has the bound on the waste.

// These constants are what a lingering earns and costs.
const (
	useEarns   = 1       // this process has taken the lock again
	wasteEarns = -2      // another process has queued meanwhile
	mostCredit = 64      // the most that a path keeps
	newCredit  = 8       // the most that a new path starts with
	noCredit   = -255    // after as many releases without lingering, the lock lingers once
	mostKnown  = 1 << 12 // paths; when there are more, all are forgotten
)

// credits have the credit of each path of a registry. Its mutex guards all but lately.
type credits struct {
	known  map[lockKey]int32 // of paths without a stake
	lately atomic.Int32      // what all paths have earned
}

func newCredits() *credits {
	all := &credits{known: make(map[lockKey]int32)}
	all.lately.Store(-wasteEarns) // a single waste shall not stop lingering
	return all
}

// A credit is the balance of one path, guarded by the mutex of its cohort. If it is negative, that number of releases do not let the lock
// linger.
type credit struct {
	left   int32
	lately *atomic.Int32
}

// of returns the credit of a path. An unknown path starts with what the other paths have earned lately.
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

// passed is called after a release at which the lock did not linger.
func (c *credit) passed() {
	if c.left < 0 {
		c.left++
	}
}

// used is called after a lingering, when this process has taken the lock again.
func (c *credit) used() { c.learn(useEarns) }

// wasted is called after a lingering that another process has ended.
func (c *credit) wasted() { c.learn(wasteEarns) }

func (c *credit) learn(earned int32) {
	before := c.lately.Load()
	after := min(max(before+earned, -mostCredit), mostCredit)
	if after != before { // most often they are equal, and no core writes
		c.lately.Store(after) // one of two concurrent stores is enough
	}
	if c.left = min(c.left+earned, mostCredit); c.left < 0 || c.left == 0 && after < 0 {
		c.left = noCredit
	}
}
