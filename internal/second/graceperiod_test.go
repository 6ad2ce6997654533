package second

import (
	"fmt"
	"testing"

	"github.com/tierlock/tierlock/internal/test/need"
)

func TestThoseWhomAGracePeriodKeepsFromTheLock(t *testing.T) {
	reads, writes := Contender{Shared: true}, Contender{}
	for _, test := range []struct {
		queue []Contender
		has   int // how many contenders at the head of the queue had the lock before the grace period
		want  string
	}{
		{[]Contender{writes, writes}, 0, "[true false]"},
		{[]Contender{writes, reads}, 1, "[false false]"},
		{[]Contender{reads, reads, writes, reads}, 1, "[false true false false]"},
		{[]Contender{writes, reads, reads}, 0, "[true false false]"},
		{[]Contender{{Permits: 2}, {Permits: 1}}, 1, "[false true]"},
	} {
		InGracePeriod(test.queue, func(i int) bool { return i < test.has })
		var got []bool
		for _, c := range test.queue {
			got = append(got, c.InGracePeriod)
			need.That(t, fmt.Sprintf("%v: has %d permits", test, c.Permits), !c.InGracePeriod || c.Permits == 0)
		}
		need.Equal(t, fmt.Sprint(test), fmt.Sprint(got), test.want)
	}
}

// A grace period may end after the answer that reported it and before Locked is called. Locked then returns ErrLocked.
func TestTryAfterAGracePeriodIsLocked(t *testing.T) {
	var over *GracePeriodError
	need.Equal(t, "a try when it is over", over.Locked(), ErrLocked)
}
