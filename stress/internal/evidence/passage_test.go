package evidence

import "testing"

func TestHandOverIsTheTimeBetweenSectionsOfTwoProcesses(t *testing.T) {
	dir := t.TempDir()
	one, two := open(t, dir, 0, ByCount), open(t, dir, 0, ByCount)
	if p, passed := one.Arrive(1, 100); passed {
		t.Errorf("the first section of all: got %+v", p)
	}
	one.Depart(1, 200)
	if p, passed := one.Arrive(1, 210); passed {
		t.Errorf("the same process again: got %+v", p)
	}
	one.Depart(1, 300)
	if p, passed := two.Arrive(2, 350); !passed || p != (Passage{HandOver: 50}) {
		t.Errorf("the first section of another process: got %+v, want a hand-over of 50 ns", p)
	}
	two.Depart(2, 400)
	if p, passed := one.Arrive(1, 407); !passed || p != (Passage{HandOver: 7, Away: 107}) {
		t.Errorf("back again: got %+v, want a hand-over of 7 ns after 107 ns away", p)
	}
}
