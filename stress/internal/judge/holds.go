package judge

import (
	"cmp"
	"slices"
	"time"

	"github.com/tierlock/tierlock/internal/test/oracle"
	"github.com/tierlock/tierlock/stress/internal/clock"
	"github.com/tierlock/tierlock/stress/internal/evidence"
)

// perPath returns the holds of each path, in the order of Got.
func perPath(holds []evidence.Hold, paths int) [][]evidence.Hold {
	sorted := make([][]evidence.Hold, paths)
	for _, h := range holds {
		sorted[h.Path] = append(sorted[h.Path], h)
	}
	for _, p := range sorted {
		slices.SortFunc(p, func(a, b evidence.Hold) int { return cmp.Compare(a.Got, b.Got) })
	}
	return sorted
}

// The function ours returns the holds without those that were already lost when Acquire returned.
func ours(holds []evidence.Hold) []evidence.Hold {
	return slices.DeleteFunc(slices.Clone(holds), func(h evidence.Hold) bool { return h.Valid == 0 })
}

// The function overlaps counts the holds that began too early. A hold began too early if earlier holds were still known to be valid and
// left too little room. All holds are of one path, in the order of Got.
func overlaps(holds []evidence.Hold, room oracle.Room) (n int64) {
	var inside []evidence.Hold
	for _, h := range holds {
		inside = slices.DeleteFunc(inside, func(other evidence.Hold) bool { return other.Valid <= h.Got })
		weight := h.Weight
		for _, other := range inside {
			weight += other.Weight
		}
		n += count(!room.Fits(weight))
		inside = append(inside, h)
	}
	return n
}

// The function meetings counts the cases in which a kernel lock of a path was not free at once. A case is late if a hold explains it,
// because its holder had lost the lock and was still inside, or had died. The other cases are unexplained.
func meetings(holds []evidence.Hold, room oracle.Room) (late, unexplained int64) {
	var suspects []evidence.Hold
	for _, h := range holds {
		if h.Lost || h.Over == 0 {
			suspects = append(suspects, h)
		}
	}
	for _, h := range holds {
		if h.Met == nil {
			continue
		}
		explained := h.Valid < h.Met.Until || slices.ContainsFunc(suspects, func(other evidence.Hold) bool {
			inside := other.Got < h.Met.Until && (other.Left == 0 || other.Left > h.Met.From)
			inTheWay := room != oracle.Everybody || !room.Fits(h.Weight+other.Weight) // two readers do not block each other
			return inside && inTheWay && other.Valid < h.Met.Until && (other.Process != h.Process || other.ID != h.ID)
		})
		late += count(explained)
		unexplained += count(!explained)
	}
	return late, unexplained
}

// ofWeight returns the holds that have this weight.
func ofWeight(holds []evidence.Hold, weight int64) []evidence.Hold {
	return slices.DeleteFunc(slices.Clone(holds), func(h evidence.Hold) bool { return h.Weight != weight })
}

// The function stopped looks at the holds during which their process was paused. It returns three numbers: how many there are, how many
// of them were lost, and how many were still valid after a pause that was longer than a lease.
func stopped(holds []evidence.Hold, stops []Stop, lease time.Duration) (spanned, lost, missing int64) {
	for _, s := range stops {
		for _, h := range holds {
			if h.Process != s.Process || h.Got > s.From || max(h.Valid, h.Over) < s.Until {
				continue
			}
			spanned++
			lost += count(h.Lost)
			missing += count(h.Valid >= s.Until && s.Until.Sub(s.From) >= lease)
		}
	}
	return spanned, lost, missing
}

// The function stalls counts the times for which a path was not acquired, if they are longer than patience. Each disturbance in such a
// time extends the limit by the length of the disturbance and by patience. holds are holds of the path, in the order of Got. stalls also
// returns the longest time for which the path was not acquired.
func stalls(holds []evidence.Hold, begin, end clock.Instant, faults []Disturbance, patience time.Duration,
) (n int64, longest time.Duration) {
	last := begin
	for i := range len(holds) + 1 {
		next := end
		if i < len(holds) {
			next = holds[i].Got
		}
		gap := next.Sub(last)
		allowed := patience
		if gap > patience {
			for _, f := range faults {
				if f.From < next && f.Until.Add(patience) > last {
					allowed += f.Until.Sub(f.From) + patience
				}
			}
		}
		n += count(gap > allowed)
		longest = max(longest, gap)
		last = max(last, next)
	}
	return n, longest
}

// countSince counts the holds that began at the instant i or later.
func countSince(holds []evidence.Hold, i clock.Instant) (n int64) {
	for _, h := range holds {
		n += count(h.Got >= i)
	}
	return n
}

func count(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
