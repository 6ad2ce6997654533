package main

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// span is a hold that was released in good order, by process and time.
func span(process int, token int64, got, until instant) hold {
	return hold{
		Process: process, ID: int(got), Token: token, Asked: got - 1, Got: got, Left: until, Valid: until, Over: until + 1,
	}
}

// late is a hold that was known to be valid until an instant, and over only later.
func late(process int, token int64, got, valid, over instant) hold {
	h := span(process, token, got, over-1)
	h.Valid, h.Lost = valid, true
	return h
}

// killed is a hold whose process was killed at some time after valid.
func killed(process int, token int64, got, valid instant) hold {
	h := late(process, token, got, valid, valid+2)
	h.Over, h.Left, h.Lost = 0, 0, false
	return h
}

func met(h hold, from, until instant) hold {
	h.Met = &overlap{from, until}
	return h
}

func TestOverlapsAreThoseOfValidHolds(t *testing.T) {
	for _, test := range []struct {
		name  string
		holds []hold
		want  int64
	}{
		{"in turn", []hold{span(1, 1, 10, 20), span(2, 2, 21, 30)}, 0},
		{"two at once", []hold{span(1, 1, 10, 20), span(2, 2, 19, 30)}, 1},
		{"two of one process", []hold{span(1, 1, 10, 20), span(1, 1, 19, 30)}, 1},
		{"one within a long one", []hold{span(1, 1, 10, 90), span(2, 2, 20, 30), span(3, 3, 40, 50)}, 2},
		{"with a late one", []hold{late(1, 1, 10, 20, 90), span(2, 2, 21, 30)}, 0},
		{"with a late one before it was late", []hold{late(1, 1, 10, 22, 90), span(2, 2, 21, 30)}, 1},
		{"with a dead one", []hold{killed(1, 1, 10, 20), span(2, 2, 21, 30)}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := overlaps(perPath(test.holds, 1)[0]); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

func TestHoldsThatWereLostWhenAcquiredClaimNothing(t *testing.T) {
	lost := late(1, 1, 10, 0, 90)
	if got := ours([]hold{lost, span(2, 2, 11, 20)}); len(got) != 1 || got[0].Process != 2 {
		t.Errorf("got %+v, want the other one alone", got)
	}
}

func TestMeetingsNeedALateHolder(t *testing.T) {
	for _, test := range []struct {
		name      string
		holds     []hold
		late, not int64
	}{
		{"nobody met", []hold{late(1, 1, 10, 20, 90), span(2, 2, 21, 30)}, 0, 0},
		{"a late one", []hold{late(1, 1, 10, 20, 90), met(span(2, 2, 30, 40), 31, 32)}, 1, 0},
		{"being late oneself", []hold{met(late(1, 1, 10, 20, 90), 25, 26), span(2, 2, 21, 30)}, 1, 0},
		{"a dead one", []hold{killed(1, 1, 10, 20), met(span(2, 2, 30, 40), 31, 32)}, 1, 0},
		{"nobody there", []hold{met(span(2, 2, 30, 40), 31, 32)}, 0, 1},
		{"a valid one", []hold{span(1, 1, 10, 90), met(span(2, 2, 30, 40), 31, 32)}, 0, 1},
		{"one that was late only afterwards", []hold{late(1, 1, 10, 33, 90), met(span(2, 2, 30, 40), 31, 32)}, 0, 1},
		{"a late one that had left", []hold{late(1, 1, 10, 20, 30), met(span(2, 2, 30, 40), 31, 32)}, 0, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			if late, not := meetings(test.holds); late != test.late || not != test.not {
				t.Errorf("got %d explained, %d not, want %d, %d", late, not, test.late, test.not)
			}
		})
	}
}

func TestStoppedHolderMustFindTheLoss(t *testing.T) {
	const lease = 50
	during := stop{Process: 1, From: 20, Until: 80}
	for _, test := range []struct {
		name                 string
		hold                 hold
		stop                 stop
		spanned, lost, blind int64
	}{
		{"found it", late(1, 1, 10, 15, 90), during, 1, 1, 0},
		{"did not", span(1, 1, 10, 85), during, 1, 0, 1},
		{"did not at first", late(1, 1, 10, 81, 90), during, 1, 1, 1},
		{"after a short stop", span(1, 1, 10, 85), stop{1, 31, 80}, 1, 0, 0},
		{"of another process", span(2, 1, 10, 85), during, 0, 0, 0},
		{"acquired after the stop", span(1, 1, 81, 85), during, 0, 0, 0},
		{"acquired while it was being stopped", span(1, 1, 21, 85), during, 0, 0, 0},
		{"released before", span(1, 1, 10, 18), during, 0, 0, 0},
		{"killed while stopped", killed(1, 1, 10, 15), during, 0, 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			spanned, lost, blind := stopped([]hold{test.hold}, []stop{test.stop}, lease)
			if spanned != test.spanned || lost != test.lost || blind != test.blind {
				t.Errorf("got %d, %d, %d, want %d, %d, %d", spanned, lost, blind, test.spanned, test.lost, test.blind)
			}
		})
	}
}

func TestStallsAreGapsBeyondTheFaults(t *testing.T) {
	holds := []hold{span(1, 1, 100, 101), span(1, 1, 200, 201)}
	for _, test := range []struct {
		name   string
		faults []disturbance
		end    instant
		want   int64
	}{
		{"steady", nil, 290, 0},
		{"nothing at the end", nil, 320, 1},
		{"a fault, and time to recover", []disturbance{{205, 220}}, 320, 0},
		{"a fault that does not last that long", []disturbance{{205, 220}}, 430, 1},
		{"a fault long before", []disturbance{{10, 90}}, 320, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got, _ := stalls(holds, 0, test.end, test.faults, 100); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
	if n, longest := stalls(nil, 0, 500, nil, 100); n != 1 || longest != 500 {
		t.Errorf("never acquired: got %d stalls, longest gap %d, want 1, 500", n, longest)
	}
}

func TestHistory(t *testing.T) {
	nested := span(1, 5, 10, 40)
	nested.Nested = []nesting{{Token: 5, Asked: 11, Got: 12, Called: 13, Return: 14}, {Token: 5, Asked: 15, Got: 16, Called: 17, Return: 18}}
	otherToken := nested
	otherToken.Nested = []nesting{{Token: 6, Asked: 11, Got: 12, Called: 13, Return: 14}}
	for _, test := range []struct {
		name  string
		holds []hold
		legal bool
	}{
		{"in turn", []hold{span(1, 5, 10, 20), span(2, 6, 21, 30)}, true},
		{"passed on within the process", []hold{span(1, 5, 10, 20), span(1, 5, 21, 30)}, true},
		{"passed on to another process", []hold{span(1, 5, 10, 20), span(2, 5, 30, 40)}, false},
		{"token falls", []hold{span(1, 5, 10, 20), span(1, 4, 30, 40)}, false},
		{"two at once", []hold{span(1, 5, 10, 30), span(2, 6, 21, 40)}, false},
		{"after a lost one", []hold{late(1, 5, 10, 20, 90), span(2, 6, 30, 40)}, true},
		{"while one still is valid", []hold{late(1, 5, 10, 50, 90), span(2, 6, 30, 40)}, false},
		{"after a dead one", []hold{killed(1, 5, 10, 20), span(2, 6, 30, 40), span(3, 7, 50, 60)}, true},
		{"while the dead one lived", []hold{killed(1, 5, 10, 35), span(2, 6, 30, 40)}, false},
		{"re-entered", []hold{nested, span(2, 6, 50, 60)}, true},
		{"re-entered with another token", []hold{otherToken}, false},
		{"two while one re-enters", []hold{nested, span(2, 6, 20, 30)}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := checkHistory(test.holds, time.Now().Add(checkingTime)); (got == porcupine.Ok) != test.legal {
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
	var holds []hold
	for i := range 3 * windowSize {
		holds = append(holds, span(1+i%2, int64(i+1), instant(10*i+1), instant(10*i+5)))
	}
	deadline := time.Now().Add(checkingTime)
	if got := checkHistory(holds, deadline); got != porcupine.Ok {
		t.Fatalf("correct history: got %v", got)
	}
	for _, at := range []int{1, windowSize - 1, windowSize, 2 * (windowSize - windowOverlap), len(holds) - 1} {
		token := holds[at].Token
		holds[at].Token = holds[at-1].Token
		if got := checkHistory(holds, deadline); got != porcupine.Illegal {
			t.Errorf("token of hold %d belongs to the one before: got %v, want Illegal", at, got)
		}
		holds[at].Token = token
	}
	if got := checkHistory(holds, time.Now()); got != porcupine.Unknown {
		t.Errorf("no time to check: got %v, want Unknown", got)
	}
}
