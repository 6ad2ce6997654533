package judge

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/oracle"
	"github.com/tierlock/tierlock/stress/internal/clock"
	"github.com/tierlock/tierlock/stress/internal/evidence"
)

// The tests of the oracle show which steps may follow each other. This test shows how a hold becomes steps.
func TestHistory(t *testing.T) {
	const mutex, rw, three = oracle.Mutex, oracle.Everybody, 3
	nested := span(1, 5, 10, 40)
	nested.Nested = []evidence.Nesting{{Token: 5, Asked: 11, Got: 12, Called: 13, Return: 14},
		{Token: 5, Asked: 15, Got: 16, Called: 17, Return: 18}}
	otherToken := nested
	otherToken.Nested = []evidence.Nesting{{Token: 6, Asked: 11, Got: 12, Called: 13, Return: 14}}
	var many []evidence.Hold
	for i := range 2 * windowSize {
		at := clock.Instant(100 * i)
		many = append(many, span(1, int64(10*i+2), at+1, at+50), span(2, int64(10*i+1), at+2, at+60),
			writing(span(3, int64(10*i+3), at+70, at+90)))
	}
	beside := slices.Clone(many)
	beside[500].Got, beside[500].Asked = beside[500].Got-30, beside[500].Asked-30
	for _, test := range []struct {
		name  string
		room  oracle.Room
		holds []evidence.Hold
		legal bool
	}{
		{"in turn", mutex, []evidence.Hold{span(1, 5, 10, 20), span(2, 6, 21, 30)}, true},
		{"passed on to another process", mutex, []evidence.Hold{span(1, 5, 10, 20), span(2, 5, 30, 40)}, false},
		{"two at once", mutex, []evidence.Hold{span(1, 5, 10, 30), span(2, 6, 21, 40)}, false},
		{"after a lost one", mutex, []evidence.Hold{late(1, 5, 10, 20, 90), span(2, 6, 30, 40)}, true},
		{"while one still is valid", mutex, []evidence.Hold{late(1, 5, 10, 50, 90), span(2, 6, 30, 40)}, false},
		{"after a dead one", mutex, []evidence.Hold{killed(1, 5, 10, 20), span(2, 6, 30, 40), span(3, 7, 50, 60)}, true},
		{"while the dead one lived", mutex, []evidence.Hold{killed(1, 5, 10, 35), span(2, 6, 30, 40)}, false},
		{"re-entered", mutex, []evidence.Hold{nested, span(2, 6, 50, 60)}, true},
		{"re-entered with another token", mutex, []evidence.Hold{otherToken}, false},
		{"two while one re-enters", mutex, []evidence.Hold{nested, span(2, 6, 20, 30)}, false},
		{"a writer beside a reader", rw, []evidence.Hold{span(1, 5, 10, 30), span(2, 6, 11, 20), writing(span(3, 7, 21, 40))}, false},
		{"many", rw, many, true},
		{"one of many beside a reader", rw, beside, false},
		{"two and two", three, []evidence.Hold{weighing(2, span(1, 0, 10, 30)), weighing(2, span(2, 0, 11, 30))}, false},
		{"two after two that were lost", three, []evidence.Hold{weighing(2, late(1, 0, 10, 20, 90)), weighing(2, span(2, 0, 25, 30))}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, _ := checkHistory(test.holds, test.room, time.Now().Add(checkingTime))
			need.Equal(t, fmt.Sprintf("whether it is legal, which is %v,", got), got == porcupine.Ok, test.legal)
		})
	}
}

func TestManyReadersWaitAtTheSameTime(t *testing.T) {
	var holds []evidence.Hold
	for i := range clock.Instant(30) {
		holds = append(holds, writing(span(1, int64(i+1), 10*i+1, 10*i+5)))
	}
	for i := range 30 {
		h := span(2+i, int64(100+i), clock.Instant(400+i), 500)
		h.Asked = 1
		holds = append(holds, h)
	}
	got, _ := checkHistory(holds, oracle.Everybody, time.Now().Add(5*time.Second))
	need.Equal(t, "the verdict", got, porcupine.Ok)
}

func TestLongHistoryIsCheckedToItsEnd(t *testing.T) {
	holds := turns(3 * windowSize)
	deadline := time.Now().Add(checkingTime)
	got, _ := checkHistory(holds, oracle.Mutex, deadline)
	need.Equal(t, "a correct history", got, porcupine.Ok)
	for _, at := range []int{1, windowSize - 1, windowSize, 2 * (windowSize - windowOverlap), len(holds) - 1} {
		token := holds[at].Token
		holds[at].Token = holds[at-1].Token
		got, _ := checkHistory(holds, oracle.Mutex, deadline)
		need.Equal(t, fmt.Sprintf("token of hold %d belongs to the one before", at), got, porcupine.Illegal)
		holds[at].Token = token
	}
	got, _ = checkHistory(holds, oracle.Mutex, time.Now())
	need.Equal(t, "no time to check", got, porcupine.Unknown)
}
