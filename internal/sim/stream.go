package sim

import (
	"math/rand/v2"
	"slices"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// stream has readers of one process come so often that there is always one inside, and somewhere among them one that does not
// read, anywhere.
func (w *World) stream(rng *rand.Rand) {
	path := rng.IntN(w.plan.Paths)
	if w.plan.Uses[path] == OfMutex {
		return
	}
	p, other := w.worker(rng.IntN(w.plan.Processes)), w.worker(rng.IntN(w.plan.Processes))
	n := 8 + rng.IntN(16)
	for i, mode := range slices.Insert(slices.Repeat([]second.Mode{second.Reading}, n), rng.IntN(n/2), second.Writing) {
		j := w.drawJobFor(rng, p, w.plan.paths()[path], mode)
		if mode == second.Reading {
			j.section = min(around(rng, 15*time.Millisecond), w.plan.maxSection())
		} else {
			j.worker = other
		}
		w.arrive(j)
		if i < n {
			time.Sleep(around(rng, 4*time.Millisecond))
			synctest.Wait()
		}
	}
}
