package second

import (
	"math"
	"slices"
	"sync"
	"time"
)

// A Budget is for how long a process may hand a lock off, as its contender says to all others in the queue, which use the largest: if
// each used its own, shares of time would differ. There are 64, of which each is an eighth of an octave above the one before. Whoever
// says nothing says the least.
type Budget uint8

const (
	LastBudget  Budget = 63
	leastBudget        = 20 * time.Millisecond
)

// Duration is 20 ms for the least one, and 4.7 s for the last.
func (b Budget) Duration() time.Duration {
	return time.Duration(float64(leastBudget) * math.Exp2(float64(min(b, LastBudget))/8))
}

// budgetFor is the least budget that keeps a lock in use for 95 % of the time, where giving it up has taken so long of late, in any
// order: a hand-over takes as long, and nobody works meanwhile. A tenth of the lease is the most, so that nine busy processes ahead
// keep others waiting for no longer than one that has died.
func budgetFor(took [9]time.Duration, lease time.Duration) Budget {
	class := func(d time.Duration) float64 { return 8 * math.Log2(float64(max(d, leastBudget))/float64(leastBudget)) }
	slices.Sort(took[:])
	usual := took[3*len(took)/4] // the slow ones keep a lock idle for longer, and the slowest may be no hand-overs
	return Budget(min(math.Ceil(class(19*usual)), math.Floor(class(lease/10)), float64(LastBudget)))
}

// Prices are how long it took a process to give locks up, from the request to the answer: what it can measure of a hand-over by itself,
// as the clocks of two machines cannot be compared. At first they are nothing, so that one that was slow to begin with does not count.
type Prices struct {
	mu   sync.Mutex // guards the fields below
	last [9]time.Duration
	next int
	said Budget
}

// Paid notes how long it took once, if anybody wants to know.
func (p *Prices) Paid(d time.Duration) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last[p.next] = d
	p.next = (p.next + 1) % len(p.last)
}

// Budget is what a contender says that enters now, under so long a lease: nothing without prices.
func (p *Prices) Budget(lease time.Duration) Budget {
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.said = budgetFor(p.last, lease)
	return p.said
}

// Said is what the last contender has said.
func (p *Prices) Said() Budget {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said
}
