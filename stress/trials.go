package main

import "time"

// trial is one piece of work to measure.
type trial struct {
	name  string
	shape Config
}

const (
	alone    = "1 × 100, empty section"
	many     = "4 × 50, empty section"
	longer   = "4 × 50, section of 1 ms"
	patient  = "4 × 50, section of 1 ms, budget of 50 ms"
	strictly = "4 × 50, empty section, strict"
	crowded  = "4 × 1000, empty section, strict"
	looped   = "1 × 1, empty section, linger 1 s"
	bouncing = "2 × 1, section of 5 ms, strict"
)

var (
	strict    = time.Duration(0)
	generous  = 50 * time.Millisecond
	lingering = time.Second
)

// trials is the work of a benchmark, in this order.
var trials = []trial{
	{alone, Config{Procs: 1, Goroutines: 100, Baseline: true}},
	{many, Config{Procs: 4, Goroutines: 50, Baseline: true}},
	{longer, Config{Procs: 4, Goroutines: 50, Baseline: true, Section: time.Millisecond}},
	{patient, Config{Procs: 4, Goroutines: 50, Section: time.Millisecond, HandOff: &generous}},
	{strictly, Config{Procs: 4, Goroutines: 50, Baseline: true, HandOff: &strict}},
	{crowded, Config{Procs: 4, Goroutines: 1000, HandOff: &strict}}, // zk.Lock's 4000 znodes would take long to go away
	{looped, Config{Procs: 1, Goroutines: 1, Baseline: true, Linger: &lingering}},
	// The section lasts until the former owner's next node is written: a hand-over is
	// held against a single write, so no other one may be in its way.
	{bouncing, Config{Procs: 2, Goroutines: 1, Section: 5 * time.Millisecond, HandOff: &strict}},
}
