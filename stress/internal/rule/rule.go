// Package rule says which sections there are on a lock path.
package rule

import (
	"math/rand/v2"
	"time"

	"github.com/tierlock/tierlock/internal/test/oracle"
)

// Rule is the room of a lock path, and how heavy its sections are.
type Rule struct {
	oracle.Room
	Shares []Share // of all sections, which come to 1
}

// Share is that of the sections of one weight.
type Share struct {
	Weight int64
	Of     float64
}

// Mutex has every section alone.
func Mutex() Rule { return Rule{oracle.Mutex, []Share{{1, 1}}} }

// ReadersWriter is for any number of readers or one writer. Of the sections a share reads.
func ReadersWriter(reads float64) Rule {
	r := Rule{Room: oracle.Everybody}
	for _, s := range []Share{{1, reads}, {oracle.Everybody, 1 - reads}} {
		if s.Of > 0 {
			r.Shares = append(r.Shares, s)
		}
	}
	return r
}

// Permits is for so many permits. A section takes from one to so many of them.
func Permits(n, most int) Rule {
	r := Rule{Room: oracle.Room(n)}
	for i := range most {
		r.Shares = append(r.Shares, Share{int64(i + 1), 1 / float64(most)})
	}
	return r
}

// Used is what a section takes of the room in so much time: nothing if that has no end.
func (r Rule) Used(weight int64, inside time.Duration) time.Duration {
	if r.Room == oracle.Everybody {
		return 0
	}
	return inside * time.Duration(weight)
}

// Draw is the weight of a section.
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
