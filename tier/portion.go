package tier

import (
	"math"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// A portion is what came from the store in one write.
type portion struct {
	store   second.Semaphore // to give it back to
	since   time.Duration
	budgets float64 // for how many of them it may stay while others wait
}

// A permit is one of a portion.
type permit struct {
	second.Permit
	*portion
}

// idleTrips is for how many round trips a permit is idle on its way to another process, where a lock
// is for one: the release, the look, the exchange. For as many budgets it stays.
const idleTrips = 3

// portionOf makes a portion of what the courier brought. A part of all permits stays for longer in
// proportion, up to once for each process that queues. Others wait as if each of these had all
// permits in turn, but fewer have to move.
func (p *pool) portionOf(permits []second.Permit, store second.Semaphore) []permit {
	parts := float64(p.permits) / float64(len(permits))
	queueing := float64(1 + p.trip.Others())
	from := &portion{store, p.registry.now(), idleTrips * min(parts, queueing)}
	all := make([]permit, len(permits))
	for i, one := range permits {
		all[i] = permit{one, from}
	}
	return all
}

// ends returns when a permit that began to be wanted elsewhere at the time alone has to go.
func (one permit) ends(alone, budget time.Duration) time.Duration {
	stay := min(one.budgets*float64(budget), math.MaxInt64/2)
	return max(alone, one.since) + time.Duration(stay)
}

// giveBack releases permits in the store.
func giveBack(permits []permit) error {
	if len(permits) == 0 {
		return nil
	}
	all := make([]second.Permit, len(permits))
	for i, one := range permits {
		all[i] = one.Permit
	}
	return permits[0].store.Release(all)
}
