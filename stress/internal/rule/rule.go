// Package rule defines which sections may be inside a lock at the same time.
package rule

import (
	"math/rand/v2"
	"time"

	"github.com/tierlock/tierlock/internal/test/oracle"
)

// Rule is the room of a lock path, and the weights of its sections.
type Rule struct {
	oracle.Room
	Shares []Share // of all sections, which come to 1
}

// Share is the proportion of sections that have one weight.
type Share struct {
	Weight int64
	Of     float64
}

// Mutex is the rule that every section is alone.
func Mutex() Rule { return Rule{oracle.Mutex, []Share{{1, 1}}} }

// ReadersWriter is the rule for any number of readers or one writer. reads is the proportion of sections that read.
func ReadersWriter(reads float64) Rule {
	r := Rule{Room: oracle.Everybody}
	for _, s := range []Share{{1, reads}, {oracle.Everybody, 1 - reads}} {
		if s.Of > 0 {
			r.Shares = append(r.Shares, s)
		}
	}
	return r
}

// Permits is the rule for n permits. A section takes between one and most of them.
func Permits(n, most int) Rule {
	r := Rule{Room: oracle.Room(n)}
	for i := range most {
		r.Shares = append(r.Shares, Share{int64(i + 1), 1 / float64(most)})
	}
	return r
}

// Used returns how much of the room a section uses in a time: nothing if the room is unlimited.
func (r Rule) Used(weight int64, inside time.Duration) time.Duration {
	if r.Room == oracle.Everybody {
		return 0
	}
	return inside * time.Duration(weight)
}

// Draw draws the weight of a section.
func (r Rule) Draw(random *rand.Rand) int64 {
	last := len(r.Shares) - 1
	if last == 0 { // the shortest turns would notice a random number
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
