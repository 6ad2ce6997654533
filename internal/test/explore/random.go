package explore

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A Random runs one schedule of random steps in a world. Most steps are the usual next one. After Steps random steps, all steps are usual
// ones, and therefore every wait ends. The seed determines the choices, but the scheduler orders events at the same instant.
type Random struct {
	Begin func(*testing.T) World
	Seed  uint64
	Steps int // how many steps are random
}

// Run executes one schedule. If there is a violation, and reduced is true, it also shortens the schedule.
func (r Random) Run(t *testing.T, reduced bool) *Violation {
	random := rand.New(rand.NewPCG(r.Seed, 1))
	// Both numbers are percentages: of faults among the steps, and of the first usual step among the other steps.
	faults, usual := []int{0, 2, 5, 10}[random.IntN(4)], random.IntN(80)
	left := r.Steps
	v := play(t, r.Begin, func(steps []Step) *Step {
		fault := random.IntN(100) < faults && slices.ContainsFunc(steps, func(x Step) bool { return x.Fault })
		some := slices.DeleteFunc(slices.Clone(steps), func(x Step) bool { return x.Fault != fault })
		if left--; left < 0 || len(some) == 0 || !fault && random.IntN(100) < usual {
			return nil
		}
		return &some[random.IntN(len(some))]
	})
	if v != nil && reduced {
		v = v.reduce(t, r.Begin)
	}
	return v
}

// play takes steps up to the end. Each step is the one that choose returns, or the first usual step if choose returns nil.
func play(t *testing.T, begin func(*testing.T) World, choose func([]Step) *Step) (v *Violation) {
	synctest.Test(t, func(t *testing.T) {
		w := begin(t)
		var schedule []string
		for {
			synctest.Wait()
			steps := w.Steps(func(i, j int) bool { return i < j })
			x := choose(steps)
			if x == nil {
				i := slices.IndexFunc(steps, func(x Step) bool { return !x.Fault })
				if i < 0 {
					break
				}
				x = &steps[i]
			}
			schedule = append(schedule, x.Name)
			x.Take()
		}
		if _, wrong := w.End(); wrong != nil {
			v = &Violation{wrong, schedule}
		}
	})
	return v
}

// reduce shortens the schedule for at most half a minute. It leaves out as many steps as possible, large groups first, while the same check
// still fails.
func (v *Violation) reduce(t *testing.T, begin func(*testing.T) World) *Violation {
	begun := time.Now()
	for size := len(v.Schedule) / 2; size > 0; size /= 2 {
		for i := 0; i < len(v.Schedule) && time.Since(begun) < time.Minute/2; {
			fewer := slices.Delete(slices.Clone(v.Schedule), i, min(i+size, len(v.Schedule)))
			if less := lenient(t, begin, fewer); less != nil && less.judge() == v.judge() && len(less.Schedule) < len(v.Schedule) {
				v = less
			} else {
				i += size
			}
		}
	}
	return v
}

func (v *Violation) judge() string {
	judge, _, _ := strings.Cut(v.Wrong.Error(), ":")
	return judge
}

// lenient takes the named steps, and skips impossible ones.
func lenient(t *testing.T, begin func(*testing.T) World, schedule []string) *Violation {
	return play(t, begin, func(steps []Step) *Step {
		for len(schedule) > 0 {
			i := slices.IndexFunc(steps, func(x Step) bool { return x.Name == schedule[0] })
			if schedule = schedule[1:]; i >= 0 {
				return &steps[i]
			}
		}
		return nil
	})
}
