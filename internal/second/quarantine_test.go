package second

import (
	"fmt"
	"testing"

	"github.com/tierlock/tierlock/internal/test/need"
)

func TestThoseWhomAQuarantineKeepsFromTheLock(t *testing.T) {
	reads, writes := Contender{Shared: true}, Contender{}
	for _, test := range []struct {
		queue []Contender
		has   int // how many of them
		want  string
	}{
		{[]Contender{writes, writes}, 0, "[true false]"},
		{[]Contender{writes, reads}, 1, "[false false]"},
		{[]Contender{reads, reads, writes, reads}, 1, "[false true false false]"},
		{[]Contender{writes, reads, reads}, 0, "[true false false]"},
		{[]Contender{{Permits: 2}, {Permits: 1}}, 1, "[false true]"},
	} {
		Quarantined(test.queue, func(i int) bool { return i < test.has })
		var got []bool
		for _, c := range test.queue {
			got = append(got, c.Quarantined)
			need.That(t, fmt.Sprintf("%v: has %d permits", test, c.Permits), !c.Quarantined || c.Permits == 0)
		}
		need.Equal(t, fmt.Sprint(test), fmt.Sprint(got), test.want)
	}
}

// It may end between the answer that told of it and the look at it.
func TestTryAfterAQuarantineIsLocked(t *testing.T) {
	var over *QuarantineError
	need.Equal(t, "a try when it is over", over.Locked(), ErrLocked)
}
