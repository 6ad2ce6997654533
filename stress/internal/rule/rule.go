// Package rule says which sections of a lock path may be at once.
package rule

import (
	"math/rand/v2"
	"time"
)

// Rule gives each section a weight. Sections may be at once if their weights come to Room
// at most; one that weighs as much is alone.
type Rule struct {
	Room   int64
	Shares []Share // of all sections, which come to 1
}

// Share is that of the sections of one weight.
type Share struct {
	Weight int64
	Of     float64
}

// Everybody is room for any number of readers, and the weight of a writer.
const Everybody = 1 << 32

// Mutex has every section alone.
func Mutex() Rule { return Rule{1, []Share{{1, 1}}} }

// ReadersWriter is for any number of readers or one writer. Of the sections a share reads.
func ReadersWriter(reads float64) Rule {
	r := Rule{Room: Everybody}
	for _, s := range []Share{{1, reads}, {Everybody, 1 - reads}} {
		if s.Of > 0 {
			r.Shares = append(r.Shares, s)
		}
	}
	return r
}

// Permits is for so many permits. A section takes from one to so many of them.
func Permits(n, most int) Rule {
	r := Rule{Room: int64(n)}
	for i := range most {
		r.Shares = append(r.Shares, Share{int64(i + 1), 1 / float64(most)})
	}
	return r
}

// Alone reports whether a section of this weight has nobody beside it.
func (r Rule) Alone(weight int64) bool { return weight >= r.Room }

// Used is what a section takes of the room in so much time: nothing if that has no end.
func (r Rule) Used(weight int64, inside time.Duration) time.Duration {
	if r.Room == Everybody {
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
