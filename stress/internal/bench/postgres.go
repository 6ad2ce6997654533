package bench

import (
	"time"

	"github.com/tierlock/tierlock/stress/internal/load"
)

const besideVersion = "4 × 50, empty section, beside a version column"

// postgresTrials is the work of a benchmark on PostgreSQL, with either store, in this order.
var postgresTrials = []trial{
	{name: alone, shape: load.Config{Procs: 1, Goroutines: 100, Baseline: "advisory"}},
	{name: many, shape: load.Config{Procs: 4, Goroutines: 50, Baseline: "advisory"}},
	{name: longer, shape: load.Config{Procs: 4, Goroutines: 50, Baseline: "advisory", Section: time.Millisecond}},
	{name: strictly, shape: load.Config{Procs: 4, Goroutines: 50, Baseline: "advisory", HandOff: &strict}},
	{name: besideVersion, shape: load.Config{Procs: 4, Goroutines: 50, Baseline: "version"}},
}

var postgresGoals = []goal{
	faster(many, 20, "pg_advisory_lock"),
	fair(longer),
	faster(besideVersion, 1000, "a version column"),
}
