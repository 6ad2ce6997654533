package bench

import (
	"time"

	"github.com/tierlock/tierlock/stress/internal/load"
)

// trial is one piece of work to measure.
type trial struct {
	name  string
	shape load.Config // beside the store's own lock if it has a Baseline
	// beside is an earlier trial, if not "", whose baseline is this one's as well: the same
	// work for that lock.
	beside string
}

const (
	alone     = "1 × 100, empty section"
	many      = "4 × 50, empty section"
	longer    = "4 × 50, section of 1 ms"
	patient   = "4 × 50, section of 1 ms, budget of 50 ms"
	strictly  = "4 × 50, empty section, strict"
	crowded   = "4 × 1000, empty section, strict"
	single    = "1 × 1, empty section"
	looped    = "1 × 1, empty section, linger 1 s"
	bouncing  = "2 × 1, section of 5 ms, strict"
	spread    = "1 × 200 on 1000 locks"
	returning = "1 × 200 on 1000 locks, linger 1 s"
	shared    = "4 × 50 on 200 locks"
	revisited = "4 × 50 on 200 locks, linger 1 s"
	remote    = "1 × 1, empty section, RTT of 20 ms"
	handed    = "4 × 1, section of 5 ms, strict, RTT of 20 ms"

	reading           = "4 × 50, 90 % reads, empty section"
	readingMost       = "4 × 50, 99 % reads, empty section"
	readingLonger     = "4 × 50, 90 % reads, section of 1 ms"
	readingMostLonger = "4 × 50, 99 % reads, section of 1 ms"
	readingPatient    = "4 × 50, 90 % reads, section of 1 ms, budget 50 ms"
	permitted         = "4 × 50 on 10 permits, section of 1 ms"
	permittedPatient  = "4 × 50 on 10 permits, section of 1 ms, budget 50 ms"
)

var (
	strict    = time.Duration(0)
	generous  = 50 * time.Millisecond
	lingering = time.Second
)

// The lock that readers and writers are compared with is the mutex.
func readers(reads float64, section time.Duration) load.Config {
	return load.Config{Lock: "rw", Reads: reads, Procs: 4, Goroutines: 50, Section: section, Baseline: "mutex"}
}

// far is as from one continent to its neighbour: what a machine does itself is lost in it.
const far = 20 * time.Millisecond

// trials is the work of a benchmark, in this order.
var trials = []trial{
	{name: alone, shape: load.Config{Procs: 1, Goroutines: 100, Baseline: "zk"}},
	{name: many, shape: load.Config{Procs: 4, Goroutines: 50, Baseline: "zk"}},
	{name: longer, shape: load.Config{Procs: 4, Goroutines: 50, Baseline: "zk", Section: time.Millisecond}},
	{name: patient, shape: load.Config{Procs: 4, Goroutines: 50, Section: time.Millisecond, HandOff: &generous}, beside: longer},
	{name: strictly, shape: load.Config{Procs: 4, Goroutines: 50, Baseline: "zk", HandOff: &strict}},
	// zk.Lock's 4000 znodes would take long to go away.
	{name: crowded, shape: load.Config{Procs: 4, Goroutines: 1000, HandOff: &strict}},
	{name: single, shape: load.Config{Procs: 1, Goroutines: 1, Baseline: "zk"}},
	{name: looped, shape: load.Config{Procs: 1, Goroutines: 1, Linger: &lingering}, beside: single},
	// The section lasts until the former owner's next node is written: a hand-over is
	// held against a single write, so no other one may be in its way.
	{name: bouncing, shape: load.Config{Procs: 2, Goroutines: 1, Section: 5 * time.Millisecond, HandOff: &strict}},
	{name: spread, shape: load.Config{Procs: 1, Goroutines: 200, Paths: 1000, Baseline: "zk"}},
	{name: returning, shape: load.Config{Procs: 1, Goroutines: 200, Paths: 1000, Linger: &lingering}, beside: spread},
	{name: shared, shape: load.Config{Procs: 4, Goroutines: 50, Paths: 200, Baseline: "zk"}},
	{name: revisited, shape: load.Config{Procs: 4, Goroutines: 50, Paths: 200, Linger: &lingering}, beside: shared},
	{name: remote, shape: load.Config{Procs: 1, Goroutines: 1, Baseline: "zk", RTT: far}},
	{name: handed, shape: load.Config{Procs: 4, Goroutines: 1, Section: 5 * time.Millisecond, Baseline: "zk", HandOff: &strict, RTT: far}},
	{name: reading, shape: readers(0.9, 0)},
	{name: readingMost, shape: readers(0.99, 0)},
	{name: readingLonger, shape: readers(0.9, time.Millisecond)},
	{name: readingPatient, shape: load.Config{Lock: "rw", Reads: 0.9, Procs: 4, Goroutines: 50, Section: time.Millisecond,
		HandOff: &generous}, beside: readingLonger},
	{name: readingMostLonger, shape: readers(0.99, time.Millisecond)},
	{name: permitted, shape: load.Config{Lock: "semaphore", Permits: 10, Weight: 1, Procs: 4, Goroutines: 50, Section: time.Millisecond}},
	{name: permittedPatient, shape: load.Config{Lock: "semaphore", Permits: 10, Weight: 1, Procs: 4, Goroutines: 50,
		Section: time.Millisecond, HandOff: &generous}},
}
