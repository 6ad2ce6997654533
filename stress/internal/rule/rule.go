// Package rule defines which sections of a lock may be in progress at the same time.
package rule

import (
	"math/rand/v2"
	"time"

	"github.com/tierlock/tierlock/internal/test/oracle"
)

// Rule is the rule for a lock path: how much weight may be inside at a time (Room), and the weights that sections have.
type Rule struct {
	oracle.Room
	Shares []Share // how frequent each weight is; the frequencies add up to 1
}

// Share says how frequent a weight is among all sections.
type Share struct {
	Weight int64
	Of     float64
}

// Mutex returns the rule by which every section is alone.
func Mutex() Rule { return Rule{oracle.Mutex, []Share{{1, 1}}} }

// ReadersWriter returns the rule for any number of readers or one writer. reads is the fraction of sections that read.
func ReadersWriter(reads float64) Rule {
	r := Rule{Room: oracle.Everybody}
	for _, s := range []Share{{1, reads}, {oracle.Everybody, 1 - reads}} {
		if s.Of > 0 {
			r.Shares = append(r.Shares, s)
		}
	}
	return r
}

// Permits returns the rule for n permits. A section takes at least one of them. The parameter most is the largest number that a section
// takes.
func Permits(n, most int) Rule {
	r := Rule{Room: oracle.Room(n)}
	for i := range most {
		r.Shares = append(r.Shares, Share{int64(i + 1), 1 / float64(most)})
	}
	return r
}

// Used returns the time inside multiplied by the weight. If the room is unlimited, it returns 0.
func (r Rule) Used(weight int64, inside time.Duration) time.Duration {
	if r.Room == oracle.Everybody {
		return 0
	}
	return inside * time.Duration(weight)
}

// Draw draws the weight of a section.
func (r Rule) Draw(random *rand.Rand) int64 {
	last := len(r.Shares) - 1
	if last == 0 { // drawing a random number would be noticeable in the shortest turns
		return r.Shares[0].Weight
	}
	at := random.Float64()
	for _, s := range r.Shares[:last] {
		if at -= s.Of; at < 0 {
			return s.Weight
		}
	}
	return r.Shares[last].Weight
}
