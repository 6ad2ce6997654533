package judge

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/tierlock/tierlock/stress/internal/clock"
	"github.com/tierlock/tierlock/stress/internal/evidence"
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
			if got, _ := checkHistory(test.holds, time.Now().Add(checkingTime)); (got == porcupine.Ok) != test.legal {
				t.Errorf("got %v, want legal %t", got, test.legal)
			}
		})
	}
}

func TestReleaseWithoutOwnershipIsIllegal(t *testing.T) {
	held := mutexState{owner: owner{1, 1}, count: 1, token: 5, process: 1}
	for _, state := range []mutexState{{}, held} {
		if legal, _ := state.step(operation{kind: opRelease, owner: owner{2, 2}}); legal {
			t.Errorf("release by a stranger in %+v: legal", state)
		}
	}
}

func TestLongHistoryIsCheckedToItsEnd(t *testing.T) {
	var holds []evidence.Hold
	for i := range 3 * windowSize {
		holds = append(holds, span(1+i%2, int64(i+1), clock.Instant(10*i+1), clock.Instant(10*i+5)))
	}
	deadline := time.Now().Add(checkingTime)
	if got, _ := checkHistory(holds, deadline); got != porcupine.Ok {
		t.Fatalf("correct history: got %v", got)
	}
	for _, at := range []int{1, windowSize - 1, windowSize, 2 * (windowSize - windowOverlap), len(holds) - 1} {
		token := holds[at].Token
		holds[at].Token = holds[at-1].Token
		if got, _ := checkHistory(holds, deadline); got != porcupine.Illegal {
			t.Errorf("token of hold %d belongs to the one before: got %v, want Illegal", at, got)
		}
		holds[at].Token = token
	}
	if got, _ := checkHistory(holds, time.Now()); got != porcupine.Unknown {
		t.Errorf("no time to check: got %v, want Unknown", got)
	}
}
