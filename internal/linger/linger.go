// Package linger learns at each path whether it pays to keep a lock that nobody wants for the moment. tier/DESIGN.md has the bound on
// the waste that comes of it.
package linger

import "sync/atomic"

// What a lingering earns and costs.
const (
	used     = 1       // this process has taken the lock again
	wasted   = -2      // another one has come meanwhile
	most     = 64      // so much is kept
	first    = 8       // at a path of which nothing is known, at most
	none     = 255     // releases without lingering, and then it is tried again
	maxKnown = 1 << 12 // paths; when there are more, all are forgotten
)

// Credits are what the paths of a registry have earned, by keys of type K. Its user guards all but the credits that it has handed out.
type Credits[K comparable] struct {
	known  map[K]int32  // of paths that nobody has a stake in
	lately atomic.Int32 // what all paths have earned
}

// New returns credits without any.
func New[K comparable]() *Credits[K] {
	all := &Credits[K]{known: make(map[K]int32)}
	all.lately.Store(-wasted) // once is no pattern
	return all
}

// A Credit is that of one path. Its user guards it. If it is negative, the lock does not linger at so many releases.
type Credit struct {
	left   int32
	lately *atomic.Int32
}

// Of returns the credit of a path. One that is not known begins with what the others have earned lately.
func (all *Credits[K]) Of(key K) Credit {
	left, known := all.known[key]
	if lately := all.lately.Load(); !known && lately >= 0 {
		left = min(lately, first)
	} else if !known {
		left = -none
	}
	return Credit{left, &all.lately}
}

// Remember keeps the credit of a path.
func (all *Credits[K]) Remember(key K, c Credit) {
	if c == all.Of(key) {
		return
	}
	if len(all.known) >= maxKnown {
		clear(all.known)
	}
	all.known[key] = c.left
}

// Len returns of how many paths it is known.
func (all *Credits[K]) Len() int { return len(all.known) }

// Pays reports whether the lock is to linger.
func (c *Credit) Pays() bool { return c.left >= 0 }

// Passed follows a release at which the lock did not linger.
func (c *Credit) Passed() {
	if c.left < 0 {
		c.left++
	}
}

// Used follows a lingering after which this process has taken the lock again.
func (c *Credit) Used() { c.learn(used) }

// Wasted follows a lingering that another process has ended.
func (c *Credit) Wasted() { c.learn(wasted) }

func (c *Credit) learn(earned int32) {
	before := c.lately.Load()
	after := min(max(before+earned, -most), most)
	if after != before { // most often it is not, and nobody writes
		c.lately.Store(after) // of two at the same time one is enough
	}
	if c.left = min(c.left+earned, most); c.left < 0 || c.left == 0 && after < 0 {
		c.left = -none
	}
}
