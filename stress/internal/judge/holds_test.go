package judge

import (
	"fmt"
	"testing"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/oracle"
	"github.com/tierlock/tierlock/stress/internal/clock"
	"github.com/tierlock/tierlock/stress/internal/evidence"
)

// The function span returns a hold that its process released normally.
func span(process int, token int64, got, until clock.Instant) evidence.Hold {
	return evidence.Hold{
		Process: process, ID: int(got), Weight: 1, Token: token, Asked: got - 1, Got: got, Left: until, Valid: until, Over: until + 1,
	}
}

// late(…) returns a hold that was lost: it was known to be valid until the instant valid, and ended only later.
func late(process int, token int64, got, valid, over clock.Instant) evidence.Hold {
	h := span(process, token, got, over-1)
	h.Valid, h.Lost = valid, true
	return h
}

// The function killed returns a hold that was known to be valid until valid. Its process was killed at some time after that.
func killed(process int, token int64, got, valid clock.Instant) evidence.Hold {
	h := late(process, token, got, valid, valid+2)
	h.Over, h.Left, h.Lost = 0, 0, false
	return h
}

func met(h evidence.Hold, from, until clock.Instant) evidence.Hold {
	h.Met = &evidence.Overlap{From: from, Until: until}
	return h
}

// The function weighing returns the hold h with the given weight.
func weighing(weight int64, h evidence.Hold) evidence.Hold {
	h.Weight = weight
	return h
}

func writing(h evidence.Hold) evidence.Hold { return weighing(oracle.Everybody, h) }

func TestOverlapsAreThoseOfValidHolds(t *testing.T) {
	const mutex, rw, three = oracle.Mutex, oracle.Everybody, 3
	for _, test := range []struct {
		name  string
		room  oracle.Room
		holds []evidence.Hold
		want  int64
	}{
		{"in turn", mutex, []evidence.Hold{span(1, 1, 10, 20), span(2, 2, 21, 30)}, 0},
		{"two at once", mutex, []evidence.Hold{span(1, 1, 10, 20), span(2, 2, 19, 30)}, 1},
		{"two of one process", mutex, []evidence.Hold{span(1, 1, 10, 20), span(1, 1, 19, 30)}, 1},
		{"one within a long one", mutex, []evidence.Hold{span(1, 1, 10, 90), span(2, 2, 20, 30), span(3, 3, 40, 50)}, 2},
		{"with a late one", mutex, []evidence.Hold{late(1, 1, 10, 20, 90), span(2, 2, 21, 30)}, 0},
		{"with a late one before it was late", mutex, []evidence.Hold{late(1, 1, 10, 22, 90), span(2, 2, 21, 30)}, 1},
		{"with a dead one", mutex, []evidence.Hold{killed(1, 1, 10, 20), span(2, 2, 21, 30)}, 0},
		{"readers", rw, []evidence.Hold{span(1, 1, 10, 30), span(2, 2, 11, 20), span(3, 3, 12, 20)}, 0},
		{"a writer after all readers", rw, []evidence.Hold{span(1, 1, 10, 30), span(2, 2, 11, 20), writing(span(3, 3, 31, 40))}, 0},
		{"a writer after one of them", rw, []evidence.Hold{span(1, 1, 10, 30), span(2, 2, 11, 20), writing(span(3, 3, 21, 40))}, 1},
		{"readers beside a writer", rw, []evidence.Hold{writing(span(1, 1, 10, 30)), span(2, 2, 11, 20), span(3, 3, 25, 40)}, 2},
		{"a writer with a late reader", rw, []evidence.Hold{late(1, 1, 10, 20, 90), writing(span(2, 2, 21, 30))}, 0},
		{"permits", three, []evidence.Hold{span(1, 0, 10, 30), weighing(2, span(2, 0, 11, 20)), weighing(2, span(3, 0, 20, 40))}, 0},
		{"too many permits", three, []evidence.Hold{span(1, 0, 10, 30), span(2, 0, 11, 30), weighing(2, span(3, 0, 20, 40))}, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			need.Equal(t, "overlaps", overlaps(perPath(test.holds, 1)[0], test.room), test.want)
		})
	}
}

func TestHoldsThatWereLostWhenAcquiredClaimNothing(t *testing.T) {
	lost := late(1, 1, 10, 0, 90)
	got := ours([]evidence.Hold{lost, span(2, 2, 11, 20)})
	need.That(t, fmt.Sprintf("got %+v, want the other one alone", got), len(got) == 1 && got[0].Process == 2)
}

func TestMeetingsNeedALateHolder(t *testing.T) {
	const mutex, rw = oracle.Mutex, oracle.Everybody
	reader, after := late(1, 1, 10, 20, 90), met(span(2, 2, 30, 40), 31, 32)
	for _, test := range []struct {
		name      string
		room      oracle.Room
		holds     []evidence.Hold
		late, not int64
	}{
		{"nobody met", mutex, []evidence.Hold{late(1, 1, 10, 20, 90), span(2, 2, 21, 30)}, 0, 0},
		{"a late one", mutex, []evidence.Hold{late(1, 1, 10, 20, 90), met(span(2, 2, 30, 40), 31, 32)}, 1, 0},
		{"being late oneself", mutex, []evidence.Hold{met(late(1, 1, 10, 20, 90), 25, 26), span(2, 2, 21, 30)}, 1, 0},
		{"a dead one", mutex, []evidence.Hold{killed(1, 1, 10, 20), met(span(2, 2, 30, 40), 31, 32)}, 1, 0},
		{"nobody there", mutex, []evidence.Hold{met(span(2, 2, 30, 40), 31, 32)}, 0, 1},
		{"a valid one", mutex, []evidence.Hold{span(1, 1, 10, 90), met(span(2, 2, 30, 40), 31, 32)}, 0, 1},
		{"one that was late only afterwards", mutex, []evidence.Hold{late(1, 1, 10, 33, 90), met(span(2, 2, 30, 40), 31, 32)}, 0, 1},
		{"a late one that had left", mutex, []evidence.Hold{late(1, 1, 10, 20, 30), met(span(2, 2, 30, 40), 31, 32)}, 0, 1},
		{"a reader, by a late reader", rw, []evidence.Hold{reader, after}, 0, 1},
		{"a reader, by a late writer", rw, []evidence.Hold{writing(reader), after}, 1, 0},
		{"a writer, by a late reader", rw, []evidence.Hold{reader, writing(after)}, 1, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			late, not := meetings(test.holds, test.room)
			need.Equal(t, "explained, and not", [2]int64{late, not}, [2]int64{test.late, test.not})
		})
	}
}

func TestStoppedHolderMustFindTheLoss(t *testing.T) {
	const lease = 50
	during := Stop{Process: 1, From: 20, Until: 80}
	for _, test := range []struct {
		name                 string
		hold                 evidence.Hold
		stop                 Stop
		spanned, lost, blind int64
	}{
		{"found it", late(1, 1, 10, 15, 90), during, 1, 1, 0},
		{"did not", span(1, 1, 10, 85), during, 1, 0, 1},
		{"did not at first", late(1, 1, 10, 81, 90), during, 1, 1, 1},
		{"after a short stop", span(1, 1, 10, 85), Stop{1, 31, 80}, 1, 0, 0},
		{"of another process", span(2, 1, 10, 85), during, 0, 0, 0},
		{"acquired after the stop", span(1, 1, 81, 85), during, 0, 0, 0},
		{"acquired while it was being stopped", span(1, 1, 21, 85), during, 0, 0, 0},
		{"released before", span(1, 1, 10, 18), during, 0, 0, 0},
		{"killed while stopped", killed(1, 1, 10, 15), during, 0, 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			spanned, lost, blind := stopped([]evidence.Hold{test.hold}, []Stop{test.stop}, lease)
			need.Equal(t, "spanned, lost, blind", [3]any{spanned, lost, blind}, [3]any{test.spanned, test.lost, test.blind})
		})
	}
}

func TestStallsAreGapsBeyondTheFaults(t *testing.T) {
	holds := []evidence.Hold{span(1, 1, 100, 101), span(1, 1, 200, 201)}
	for _, test := range []struct {
		name   string
		faults []Disturbance
		end    clock.Instant
		want   int64
	}{
		{"steady", nil, 290, 0},
		{"nothing at the end", nil, 320, 1},
		{"a fault, and time to recover", []Disturbance{{From: 205, Until: 220}}, 320, 0},
		{"a fault that does not last that long", []Disturbance{{From: 205, Until: 220}}, 430, 1},
		{"a fault long before", []Disturbance{{From: 10, Until: 90}}, 320, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, _ := stalls(holds, 0, test.end, test.faults, 100)
			need.Equal(t, "stalls", got, test.want)
		})
	}
	n, longest := stalls(nil, 0, 500, nil, 100)
	need.That(t, fmt.Sprintf("never acquired: got %d stalls, longest gap %d, want 1, 500", n, longest), n == 1 && longest == 500)
}
