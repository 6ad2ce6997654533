package main

import (
	"testing"
	"time"
)

func TestHandOverIsTheTimeBetweenSectionsOfTwoProcesses(t *testing.T) {
	dir := t.TempDir()
	one, two := open(t, dir, 0, byCount), open(t, dir, 0, byCount)
	if p, passed := one.arrive(1, 100); passed {
		t.Errorf("the first section of all: got %+v", p)
	}
	one.depart(1, 200)
	if p, passed := one.arrive(1, 210); passed {
		t.Errorf("the same process again: got %+v", p)
	}
	one.depart(1, 300)
	if p, passed := two.arrive(2, 350); !passed || p != (passage{handOver: 50}) {
		t.Errorf("the first section of another process: got %+v, want a hand-over of 50 ns", p)
	}
	two.depart(2, 400)
	if p, passed := one.arrive(1, 407); !passed || p != (passage{handOver: 7, away: 107}) {
		t.Errorf("back again: got %+v, want a hand-over of 7 ns after 107 ns away", p)
	}
}

func TestInstantsOfBothClocksAgree(t *testing.T) {
	before := now()
	at := tick()
	after := now()
	const slack = 100 * time.Microsecond // the origin may have been read with an interruption
	if at < before.add(-slack) || at > after.add(slack) {
		t.Errorf("got %d between %d and %d", at, before, after)
	}
}

func TestAwayBound(t *testing.T) {
	strict := time.Duration(0)
	r := &Result{
		Busy: 0.5, Duration: int64(time.Second), Acquisitions: 500, // sections of 1 ms
		HandOver: Quantiles{Max: int64(3 * time.Millisecond)}, Away: &Quantiles{},
	}
	for _, test := range []struct {
		name string
		cfg  Config
		want time.Duration
	}{
		{"strict", Config{Lock: "tier", Procs: 4, HandOff: &strict}, 3 * 5 * time.Millisecond},
		{"default", Config{Lock: "tier", Procs: 3}, 2 * (defaultHandOff + 5*time.Millisecond)},
		{"default, far away", Config{Lock: "tier", Procs: 3, RTT: 2 * defaultHandOff}, 2 * (2*defaultHandOff + 5*time.Millisecond)},
		{"strict, far away", Config{Lock: "tier", Procs: 4, HandOff: &strict, RTT: time.Second}, 3 * 5 * time.Millisecond},
		{"alone", Config{Lock: "tier", Procs: 1}, 0},
		{"peer", Config{Lock: "zk", Procs: 4}, 0},
	} {
		if got, ok := r.awayBound(test.cfg); got != test.want || ok != (test.want > 0) {
			t.Errorf("%s: got %v, %t, want %v", test.name, got, ok, test.want)
		}
	}
	r.Away = nil
	if got, ok := r.awayBound(Config{Lock: "tier", Procs: 4}); ok {
		t.Errorf("where nobody wants the lock all the time: got %v", got)
	}
}

func TestCurveEndsAtTheLongestWait(t *testing.T) {
	h := newHistogram()
	for i := range 1000 {
		keep(h, time.Duration(i+1))
	}
	curve := curveOf(h)
	last := curve[len(curve)-1]
	if len(curve) > 40 || last.Q != 1 || last.NS != h.Max() {
		t.Errorf("got %d points, the last at %+v, want up to 40 that end at %d", len(curve), last, h.Max())
	}
	for i := range curve[1:] {
		if curve[i+1].Q <= curve[i].Q || curve[i+1].NS < curve[i].NS {
			t.Errorf("point %d goes back: %+v after %+v", i+1, curve[i+1], curve[i])
		}
	}
}
