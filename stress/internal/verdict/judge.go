package verdict

import (
	"cmp"
	"slices"
	"time"

	"github.com/tierlock/tierlock/internal/test/oracle"
	"github.com/tierlock/tierlock/stress/internal/clock"
)

// verdict is what the oracle has found in the holds of one trial.
type verdict struct {
	Overlaps int           // number of holds that began while another owner believed in its hold
	Late     time.Duration // the longest time for which an owner believed in its hold after another hold had begun
}

// judge checks the holds with the oracle of tierlock's own tests. A hold that was not released lasts until end. Before woke, the owner was
// paused. What it believed then does not count, because it could not act on it.
func judge(turns []turn, woke, end clock.Instant) verdict {
	turns = slices.Clone(turns)
	for i := range turns {
		if turns[i].until == 0 {
			turns[i].until = end
		}
	}
	slices.SortStableFunc(turns, func(x, y turn) int { return cmp.Compare(x.from, y.from) })
	var v verdict
	lock := oracle.Lock{Room: oracle.Mutex}
	for i, t := range turns {
		for j, before := range turns[:i] {
			if before.until <= t.from {
				lock = lock.Without(oracle.Turn{Process: j})
			}
			v.Late = max(v.Late, before.until.Sub(max(t.from, woke)))
		}
		var err error
		if lock, err = lock.Enter(oracle.Turn{Process: i, Weight: 1}); err != nil {
			v.Overlaps++
		}
	}
	return v
}
