package tier

import "sync/atomic"

// This file learns at each path whether it pays to keep a lock that nobody wants for the moment. DESIGN.md has the bound on the waste.

// What a lingering earns and costs.
const (
	useEarns   = 1       // this process has taken the lock again
	wasteEarns = -2      // another one has come meanwhile
	mostCredit = 64      // so much is kept
	newCredit  = 8       // at a path of which nothing is known, at most
	noCredit   = -255    // so many releases without lingering, and then it is tried again
	mostKnown  = 1 << 12 // paths; when there are more, all are forgotten
)

// credits are what the paths of a registry have earned. Its mutex guards all but lately.
type credits struct {
	known  map[lockKey]int32 // of paths that nobody has a stake in
	lately atomic.Int32      // what all paths have earned
}

func newCredits() *credits {
	all := &credits{known: make(map[lockKey]int32)}
	all.lately.Store(-wasteEarns) // once is no pattern
	return all
}

// A credit is that of one path, guarded by the mutex of its cohort. If it is negative, the lock does not linger at so many releases.
type credit struct {
	left   int32
	lately *atomic.Int32
}

// of returns the credit of a path. One that is not known begins with what the others have earned lately.
func (all *credits) of(key lockKey) credit {
	left, known := all.known[key]
	if lately := all.lately.Load(); !known && lately >= 0 {
		left = min(lately, newCredit)
	} else if !known {
		left = noCredit
	}
	return credit{left, &all.lately}
}

// remember keeps the credit of a path.
func (all *credits) remember(key lockKey, c credit) {
	if c == all.of(key) {
		return
	}
	if len(all.known) >= mostKnown {
		clear(all.known)
	}
	all.known[key] = c.left
}

// pays reports whether the lock is to linger.
func (c *credit) pays() bool { return c.left >= 0 }

// passed follows a release at which the lock did not linger.
func (c *credit) passed() {
	if c.left < 0 {
		c.left++
	}
}

// used follows a lingering after which this process has taken the lock again.
func (c *credit) used() { c.learn(useEarns) }

// wasted follows a lingering that another process has ended.
func (c *credit) wasted() { c.learn(wasteEarns) }

func (c *credit) learn(earned int32) {
	before := c.lately.Load()
	after := min(max(before+earned, -mostCredit), mostCredit)
	if after != before { // most often it is not, and nobody writes
		c.lately.Store(after) // of two at the same time one is enough
	}
	if c.left = min(c.left+earned, mostCredit); c.left < 0 || c.left == 0 && after < 0 {
		c.left = noCredit
	}
}
