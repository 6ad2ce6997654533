package judge

import (
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/tierlock/tierlock/stress/internal/clock"
	"github.com/tierlock/tierlock/stress/internal/evidence"
	"github.com/tierlock/tierlock/stress/internal/rule"
)

func TestHistory(t *testing.T) {
	nested := span(1, 5, 10, 40)
	nested.Nested = []evidence.Nesting{{Token: 5, Asked: 11, Got: 12, Called: 13, Return: 14}, {Token: 5, Asked: 15, Got: 16, Called: 17, Return: 18}}
	otherToken := nested
	otherToken.Nested = []evidence.Nesting{{Token: 6, Asked: 11, Got: 12, Called: 13, Return: 14}}
	for _, test := range []struct {
		name  string
		holds []evidence.Hold
		legal bool
	}{
		{"in turn", []evidence.Hold{span(1, 5, 10, 20), span(2, 6, 21, 30)}, true},
		{"passed on within the process", []evidence.Hold{span(1, 5, 10, 20), span(1, 5, 21, 30)}, true},
		{"passed on to another process", []evidence.Hold{span(1, 5, 10, 20), span(2, 5, 30, 40)}, false},
		{"token falls", []evidence.Hold{span(1, 5, 10, 20), span(1, 4, 30, 40)}, false},
		{"two at once", []evidence.Hold{span(1, 5, 10, 30), span(2, 6, 21, 40)}, false},
		{"after a lost one", []evidence.Hold{late(1, 5, 10, 20, 90), span(2, 6, 30, 40)}, true},
		{"while one still is valid", []evidence.Hold{late(1, 5, 10, 50, 90), span(2, 6, 30, 40)}, false},
		{"after a dead one", []evidence.Hold{killed(1, 5, 10, 20), span(2, 6, 30, 40), span(3, 7, 50, 60)}, true},
		{"while the dead one lived", []evidence.Hold{killed(1, 5, 10, 35), span(2, 6, 30, 40)}, false},
		{"re-entered", []evidence.Hold{nested, span(2, 6, 50, 60)}, true},
		{"re-entered with another token", []evidence.Hold{otherToken}, false},
		{"two while one re-enters", []evidence.Hold{nested, span(2, 6, 20, 30)}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got, _ := checkHistory(test.holds, rule.Mutex(), time.Now().Add(checkingTime)); (got == porcupine.Ok) != test.legal {
				t.Errorf("got %v, want legal %t", got, test.legal)
			}
		})
	}
}

func TestHistoryOfReadersAndWriters(t *testing.T) {
	nested := writing(span(1, 5, 10, 40))
	nested.Nested = []evidence.Nesting{{Token: 5, Asked: 11, Got: 12, Called: 13, Return: 14}}
	var many []evidence.Hold
	for i := range 2 * windowSize {
		at := clock.Instant(100 * i)
		many = append(many, span(1, int64(10*i+2), at+1, at+50), span(2, int64(10*i+1), at+2, at+60), writing(span(3, int64(10*i+3), at+70, at+90)))
	}
	beside := slices.Clone(many)
	beside[500].Got, beside[500].Asked = beside[500].Got-30, beside[500].Asked-30
	for _, test := range []struct {
		name  string
		holds []evidence.Hold
		legal bool
	}{
		{"readers with tokens in any order", []evidence.Hold{span(1, 6, 10, 30), span(2, 5, 11, 20), writing(span(3, 7, 31, 40))}, true},
		{"a writer beside a reader", []evidence.Hold{span(1, 5, 10, 30), span(2, 6, 11, 20), writing(span(3, 7, 21, 40))}, false},
		{"a reader beside a writer", []evidence.Hold{writing(span(1, 5, 10, 30)), span(2, 6, 21, 40)}, false},
		{"a reader under the writer's token", []evidence.Hold{writing(span(1, 5, 10, 20)), span(1, 5, 21, 30), writing(span(1, 5, 31, 40))}, true},
		{"the same in another process", []evidence.Hold{writing(span(1, 5, 10, 20)), span(2, 5, 30, 40)}, false},
		{"a reader's token before the writer's", []evidence.Hold{writing(span(1, 5, 10, 20)), span(2, 4, 30, 40)}, false},
		{"a writer's token before a reader's", []evidence.Hold{span(1, 6, 10, 20), span(2, 5, 11, 20), writing(span(2, 5, 30, 40))}, false},
		{"re-entered", []evidence.Hold{nested, span(2, 6, 50, 60)}, true},
		{"a writer after a dead reader", []evidence.Hold{killed(1, 5, 10, 20), writing(span(2, 6, 30, 40))}, true},
		{"while the dead one lived", []evidence.Hold{killed(1, 5, 10, 35), writing(span(2, 6, 30, 40))}, false},
		{"many", many, true},
		{"one of many beside a reader", beside, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, _ := checkHistory(test.holds, rule.ReadersWriter(0.9), time.Now().Add(checkingTime))
			if (got == porcupine.Ok) != test.legal {
				t.Errorf("got %v, want legal %t", got, test.legal)
			}
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
	if got, _ := checkHistory(holds, rule.ReadersWriter(0.9), time.Now().Add(5*time.Second)); got != porcupine.Ok {
		t.Errorf("got %v", got)
	}
}

func TestHistoryOfPermits(t *testing.T) {
	for _, test := range []struct {
		name  string
		holds []evidence.Hold
		legal bool
	}{
		{"all at once", []evidence.Hold{span(1, 0, 10, 30), span(2, 0, 11, 30), span(3, 0, 12, 30)}, true},
		{"one too many", []evidence.Hold{span(1, 0, 10, 30), span(2, 0, 11, 30), span(3, 0, 12, 30), span(4, 0, 20, 40)}, false},
		{"two at once", []evidence.Hold{span(1, 0, 10, 30), weighing(2, span(2, 0, 11, 30))}, true},
		{"two and two", []evidence.Hold{weighing(2, span(1, 0, 10, 30)), weighing(2, span(2, 0, 11, 30))}, false},
		{"two after two that were lost", []evidence.Hold{weighing(2, late(1, 0, 10, 20, 90)), weighing(2, span(2, 0, 25, 30))}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, _ := checkHistory(test.holds, rule.Permits(3, 2), time.Now().Add(checkingTime))
			if (got == porcupine.Ok) != test.legal {
				t.Errorf("got %v, want legal %t", got, test.legal)
			}
		})
	}
}

func TestReleaseWithoutOwnershipIsIllegal(t *testing.T) {
	held := state{inside: []entry{{owner{1, 1}, 1, 5, 1}}, seen: mark{5, 1}, alone: mark{5, 1}}
	for _, s := range []state{{}, held} {
		if legal, _ := s.step(operation{kind: opRelease, owner: owner{2, 2}}, rule.Mutex()); legal {
			t.Errorf("release by a stranger in %+v: legal", s)
		}
	}
}

func TestLongHistoryIsCheckedToItsEnd(t *testing.T) {
	var holds []evidence.Hold
	for i := range 3 * windowSize {
		holds = append(holds, span(1+i%2, int64(i+1), clock.Instant(10*i+1), clock.Instant(10*i+5)))
	}
	deadline := time.Now().Add(checkingTime)
	if got, _ := checkHistory(holds, rule.Mutex(), deadline); got != porcupine.Ok {
		t.Fatalf("correct history: got %v", got)
	}
	for _, at := range []int{1, windowSize - 1, windowSize, 2 * (windowSize - windowOverlap), len(holds) - 1} {
		token := holds[at].Token
		holds[at].Token = holds[at-1].Token
		if got, _ := checkHistory(holds, rule.Mutex(), deadline); got != porcupine.Illegal {
			t.Errorf("token of hold %d belongs to the one before: got %v, want Illegal", at, got)
		}
		holds[at].Token = token
	}
	if got, _ := checkHistory(holds, rule.Mutex(), time.Now()); got != porcupine.Unknown {
		t.Errorf("no time to check: got %v, want Unknown", got)
	}
}
