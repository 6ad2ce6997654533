package tier

import (
	"math"
	"slices"
	"time"
)

// This file has the policy of a pool: which waiters get the spare permits of this process, which permits the pool keeps, which go back to
// the store, and how many the pool takes from the store. The functions compute with values alone. The pool describes its state to them,
// and applies what they decide.

// A poolView is the state of a pool at one instant.
type poolView struct {
	now       time.Duration // on the clock of the leases
	alone     time.Duration // the time of the last check that saw no other process wait
	contended bool          // another process has been seen in the queue
	away      bool          // the connection to the store is down
	taken     int           // the number of permits that goroutines of this process hold
	waiters   []wish        // in order, up to the first one for which the spares cannot suffice
	spares    []spare       // in the order in which they are handed out
}

// A wish is what a waiter wants.
type wish struct {
	permits int
	budget  time.Duration // see WithHandOff
	strict  bool          // see WithStrictOrder
}

// A spare is a permit that this process has, and none of its goroutines.
type spare struct {
	stay
	granted bool // the store has just granted the permit
	certain bool // the process certainly has the permit, because its lease is valid
}

// A stay limits the time of a permit in this process while other processes wait.
type stay struct {
	since   time.Duration // when the store granted the permit
	budgets float64       // the limit, in budgets of the first waiter
}

// A verdict says what the pool does with its spares.
type verdict struct {
	fates []fate        // of each spare
	alone time.Duration // as in poolView, after this check
	until time.Duration // when the first kept permit has to leave the process; 0 if none is kept
}

// A fate says where a spare goes.
type fate int

const (
	givenBack fate = iota // it goes back to the store
	handedOut             // it goes to a waiter: the waiters get these permits in order, each one as many as it wants
	kept                  // it is kept for the first waiter that gets none
)

// assign decides about the spares when permits have come, or the first waiter has changed. It serves the waiters in order, and only whole
// requests. A permit that the store has just granted serves any waiter; another permit does so while it is fair that it stays. The permits
// that are left are kept for the next waiter, if that is fair and its request can be completed.
func (v poolView) assign() verdict {
	result := verdict{fates: make([]fate, len(v.spares)), alone: v.alone}
	if len(v.waiters) == 0 {
		return result
	}
	if !v.contended && !v.away {
		v.alone, result.alone = v.now, v.now
	}
	free := make([]int, 0, len(v.spares)) // indices of spares
	for i, one := range v.spares {
		if one.granted || v.fair(one) {
			free = append(free, i)
		}
	}
	for len(v.waiters) > 0 && v.waiters[0].permits <= len(free) {
		n := v.waiters[0].permits
		for _, i := range free[:n] {
			result.fates[i] = handedOut
		}
		v.waiters, v.taken, free = v.waiters[1:], v.taken+n, free[n:] // v is a copy, and now shows the pool after this waiter is served
	}
	if len(v.waiters) > 0 {
		v.keep(&result, slices.DeleteFunc(free, func(i int) bool { return !v.fair(v.spares[i]) }))
	}
	return result
}

// expire decides about the kept permits when the time of one of them is over. The other ones stay kept, if they still suffice.
func (v poolView) expire() verdict {
	result := verdict{fates: make([]fate, len(v.spares)), alone: v.alone}
	var left []int
	for i, one := range v.spares {
		if v.now < v.end(one.stay) {
			left = append(left, i)
		}
	}
	if len(left) > 0 {
		v.keep(&result, left)
	}
	return result
}

// keep keeps permits for the first waiter, if releases within this process can complete its request. Otherwise it keeps none, because two
// processes that each kept a part would deadlock.
func (v poolView) keep(result *verdict, permits []int) {
	if v.taken+len(permits) < v.waiters[0].permits {
		return
	}
	result.until = math.MaxInt64
	for _, i := range permits {
		result.fates[i] = kept
		result.until = min(result.until, v.end(v.spares[i].stay))
	}
}

// fair reports whether a permit may stay in this process for the first waiter. It may stay for its budgets, and as long as no other process
// waits. It may not stay without a valid lease or while the connection is down.
func (v poolView) fair(one spare) bool {
	return one.certain && !v.away && v.now < v.end(one.stay)
}

// end returns the time at which a permit has to leave the process if another process waits. The budgets run from the grant or, if that is
// later, from the last check that saw no other process. The first waiter's options set the budget.
func (v poolView) end(s stay) time.Duration {
	limit := min(s.budgets*float64(v.waiters[0].budget), math.MaxInt64/2)
	return max(v.alone, s.since) + time.Duration(limit)
}

// A supply is what a pool knows of the permits that it may take.
type supply struct {
	total  int // the permits of the semaphore
	others int // the other processes in the queue
	free   int // the permits that no process has
	kept   int // the permits that this process keeps for the first waiter
}

// take returns how many of the free permits the pool takes for its waiters. It takes the share of one process among those in the queue, or
// twice its largest request if that is more. It takes none if they do not complete the first request. In strict order only the first
// waiter counts, so that each waiter queues among the processes.
func (s supply) take(waiters []wish) int {
	if len(waiters) == 0 || s.free+s.kept < waiters[0].permits {
		return 0
	}
	share, wanted := (s.total-1)/(1+s.others)+1, 0 // rounded up
	for _, w := range waiters {
		wanted += w.permits
		if w.permits > 1 { // with a smaller share, most requests would leave a remainder that is too small for the next one
			share = max(share, 2*w.permits)
		}
		if w.strict || wanted >= s.total {
			break
		}
	}
	return max(min(wanted, share, s.free+s.kept)-s.kept, 0)
}

// idleTrips is the number of round trips for which a permit is idle when it moves to another process: the release, the read of the queue,
// and the taking. A lock that moves is idle for one round trip. Permits stay in the process for idleTrips budgets.
const idleTrips = 3

// budgetsOf returns for how many budgets the permits of a grant may stay in this process. If they are only a part of all permits, they
// stay longer in proportion, but at most for one portion per process that queues. The other processes wait as long as if each of them had
// all permits in turn, but fewer permits have to move.
func budgetsOf(granted, total, others int) float64 {
	return idleTrips * min(float64(total)/float64(granted), float64(1+others))
}
