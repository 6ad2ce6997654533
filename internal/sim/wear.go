package sim

import "math/rand/v2"

// wornFrom is the number of a lock node from which on its path is to be made anew.
const wornFrom = 1 << 30

// wear brings the numbers of a lock path close to where it is worn, now and then. No number is given out twice. Nothing
// else must be running.
func (w *World) wear(i int) {
	rng := rand.New(rand.NewPCG(w.plan.Seed, 1<<32+uint64(i)))
	path := w.plan.paths()[rng.IntN(w.plan.Paths)]
	next := int32(wornFrom - rng.IntN(8))
	_, stat, ok := w.server.Get(path)
	if created := int32(uint32(stat.Cversion+stat.NumChildren) / 2); w.plan.Worn && rng.IntN(8) == 0 && ok && created < next {
		w.diary.note("step: %s wears, its next number is %d", path, next)
		w.server.SetSequence(path, next)
	}
}
