package judge

import (
	"cmp"
	"slices"
	"time"

	"github.com/tierlock/tierlock/internal/test/oracle"
	"github.com/tierlock/tierlock/stress/internal/clock"
	"github.com/tierlock/tierlock/stress/internal/evidence"
)

// perPath sorts holds by path, and then by Got.
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

// ours leaves out the holds that were already lost when Acquire returned them.
func ours(holds []evidence.Hold) []evidence.Hold {
	return slices.DeleteFunc(slices.Clone(holds), func(h evidence.Hold) bool { return h.Valid == 0 })
}

// overlaps counts the holds of one path, in the order of Got, that began while there was no
// room beside those that were still known to be valid.
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

// meetings sorts the failures to get the kernel's locks of one path: into those that a
// late holder explains, who was still inside though it had lost the lock or who had
// died with it, and those that nothing explains.
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
			inside := other.Got < h.Met.Until && (other.Over == 0 || other.Left > h.Met.From)
			inTheWay := room != oracle.Everybody || !room.Fits(h.Weight+other.Weight) // not one reader in that of another
			return inside && inTheWay && other.Valid < h.Met.Until && (other.Process != h.Process || other.ID != h.ID)
		})
		late += count(explained)
		unexplained += count(!explained)
	}
	return late, unexplained
}

// ofWeight are the holds of sections that weigh so much.
func ofWeight(holds []evidence.Hold, weight int64) []evidence.Hold {
	return slices.DeleteFunc(slices.Clone(holds), func(h evidence.Hold) bool { return h.Weight != weight })
}

// stopped finds the holds during which their process was stopped, those of them that
// were lost, and those that were found valid afterwards though the stop was longer than
// any lease.
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

// stalls counts the times that a path, of whose holds some are given in the order of Got, was
// not acquired like these for longer than patience, on top of as much for each disturbance of that
// time and the length of it. It also returns the longest time.
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

// countSince counts the holds that began at i or later.
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
