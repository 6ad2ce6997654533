package rule

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/oracle"
)

func TestSectionsAreDrawnByTheirShares(t *testing.T) {
	const draws = 10000
	type row struct {
		rule Rule
		want map[int64]float64
	}
	need.Each(t, map[string]row{
		"mutex":                    {Mutex(), map[int64]float64{1: 1}},
		"readers and writer":       {ReadersWriter(0.9), map[int64]float64{1: 0.9, oracle.Everybody: 0.1}},
		"readers alone":            {ReadersWriter(1), map[int64]float64{1: 1}},
		"writers alone":            {ReadersWriter(0), map[int64]float64{oracle.Everybody: 1}},
		"permits":                  {Permits(10, 1), map[int64]float64{1: 1}},
		"permits, several at once": {Permits(10, 4), map[int64]float64{1: 0.25, 2: 0.25, 3: 0.25, 4: 0.25}},
	}, func(t *testing.T, test row) {
		random, got := rand.New(rand.NewPCG(1, 1)), map[int64]float64{}
		for range draws {
			got[test.rule.Draw(random)] += 1.0 / draws
		}
		need.That(t, fmt.Sprintf("got the weights %v, want %v", got, test.want), len(got) == len(test.want))
		for weight, share := range test.want {
			need.That(t, fmt.Sprintf("weight %d: got a share of %.3f, want %v", weight, got[weight], share), math.Abs(got[weight]-share) <= 0.02)
		}
	})
}
