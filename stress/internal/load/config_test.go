package load

import (
	"math/rand/v2"
	"testing"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/stress/internal/evidence"
)

func TestTheDeadLetGoUnderChaosOnly(t *testing.T) {
	need.Equal(t, "how it is judged under chaos", (&Config{Chaos: true}).judging(), evidence.ByKernel)
	need.Equal(t, "how it is judged without chaos", (&Config{}).judging(), evidence.ByCount)
}

// With Zipf 2, the first of many paths gets six of ten acquisitions. With Zipf 0, all paths get equally many.
func TestChoiceOfAPath(t *testing.T) {
	const paths, turns = 100, 10_000
	for zipf, want := range map[float64]int{0: turns / paths, 2: turns * 61 / 100} {
		choose := (&Config{Zipf: zipf}).chooser(rand.New(rand.NewPCG(1, 2)), paths)
		first := 0
		for range turns {
			if path := choose(); path == 0 {
				first++
			} else {
				need.Between(t, "another path", path, 1, paths-1)
			}
		}
		need.Between(t, "turns on the first path", first, want*8/10, want*12/10)
	}
}
