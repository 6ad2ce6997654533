package tier

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// Stats are figures of a registry: of now, and sums since it was made.
type Stats struct {
	Holds     int // locks that are held
	Lingering int // locks that are kept though nobody holds them
	Waiters   int // goroutines that wait for a lock

	// Of semaphores, which count nowhere else here; an [Observer] can tell more.
	Permits       int // that are held
	PermitWaiters int // goroutines that wait for some

	// Acquisitions are turns: locks that were acquired, without those that were entered again. How
	// each came is counted in one of Found to Joins.
	Acquisitions int64
	Found        int64 // in the store, with nobody there
	HandOvers    int64 // in the store, behind another contender: most often, from another process
	HandOffs     int64 // from another goroutine of this process, at its release
	Resumptions  int64 // from this process, where it lingered
	Joins        int64 // to read, beside others of this process that read

	// Losses are holds that were lost, by cause, counted when they are released.
	Losses map[LossCause]int64

	WaitTime time.Duration // of all waits, those included that go on or were in vain
	HoldTime time.Duration // for which locks were held, those included that still are; however many read at a time
}

// A LossCause says how a lock was lost.
type LossCause string

const (
	LossOfLease    LossCause = LossCause(second.ByLease)    // the lease ran out: the store was not heard from
	LossOfSession  LossCause = LossCause(second.BySession)  // the store ended the session
	LossByDeletion LossCause = LossCause(second.ByDeletion) // somebody deleted the contender
	LossByClose    LossCause = LossCause(second.ByClose)    // the registry was closed
	LossOtherwise  LossCause = LossCause(second.ByOther)    // such as a permission that was taken away
)

// A Source says from where a lock came to its owner.
type Source string

const (
	Found      Source = "found"      // nobody was there
	HandOver   Source = "hand-over"  // from another contender in the store
	HandOff    Source = "hand-off"   // from another goroutine of this process
	Resumption Source = "resumption" // it lingered in this process
	Join       Source = "join"       // others of this process read, too
)

// A source is an index into sources.
type source int8

const (
	found source = iota
	handOver
	handOff
	resumption
	join
)

var sources = [...]Source{Found, HandOver, HandOff, Resumption, Join}

// A tally is what a cohort counts, guarded by its mutex. A sum of times is the sum of all ends minus the sum
// of all beginnings, on the registry's clock. For each wait or hold that has not ended, whoever reads the sum
// adds the present time. An overflow in between cancels out.
type tally struct {
	came         [len(sources)]int64
	waited, held time.Duration
	losses       map[LossCause]int64 // nil before the first
}

// sum adds what a cohort has counted.
func (s *Stats) sum(t *tally) {
	s.Found += t.came[found]
	s.HandOvers += t.came[handOver]
	s.HandOffs += t.came[handOff]
	s.Resumptions += t.came[resumption]
	s.Joins += t.came[join]
	s.Acquisitions = s.Found + s.HandOvers + s.HandOffs + s.Resumptions + s.Joins
	s.WaitTime += t.waited
	s.HoldTime += t.held
	for cause, n := range t.losses {
		s.Losses[cause] += n
	}
}

// Stats returns figures of all locks and semaphores of the registry. It asks nobody, and is not a snapshot of one
// instant.
func (r *Registry) Stats() Stats {
	r.mu.RLock()
	s, stakes := r.past, slices.Collect(maps.Values(r.stakes))
	s.Losses = maps.Clone(s.Losses)
	r.mu.RUnlock()
	for _, one := range stakes {
		one.addTo(&s)
	}
	return s
}

// A HeldLock is one that this process has.
type HeldLock struct {
	Path      string
	Token     int64
	Since     time.Time // when the present owner got it, or the first of those who read; or it began to linger
	Readers   int       // who have it at the same time, as it is held to read; else 0
	Waiters   int       // goroutines of this process that wait for it
	Lingering bool      // nobody holds it, but it is kept
}

// HeldLocks returns the locks that this process has, in order of their paths. Permits of semaphores are
// not among them.
func (r *Registry) HeldLocks() []HeldLock {
	var locks []HeldLock
	for _, s := range r.all() {
		if c, ok := s.(*cohort); ok {
			if l, ok := c.heldLock(); ok {
				locks = append(locks, l)
			}
		}
	}
	slices.SortFunc(locks, func(a, b HeldLock) int { return cmp.Compare(a.Path, b.Path) })
	return locks
}
