package bench

import (
	"time"

	"github.com/tierlock/tierlock/stress/internal/load"
)

const (
	besideRedsync   = "4 × 50, empty section, beside redsync"
	besideRedislock = "4 × 50, empty section, beside bsm/redislock"
)

// redisTrials is the work of a benchmark on Redis, in this order.
var redisTrials = []trial{
	{name: alone, shape: load.Config{Procs: 1, Goroutines: 100, Baseline: "rueidislock"}},
	{name: many, shape: load.Config{Procs: 4, Goroutines: 50, Baseline: "rueidislock"}},
	{name: longer, shape: load.Config{Procs: 4, Goroutines: 50, Baseline: "rueidislock", Section: time.Millisecond}},
	{name: strictly, shape: load.Config{Procs: 4, Goroutines: 50, Baseline: "rueidislock", HandOff: &strict}},
	{name: besideRedsync, shape: load.Config{Procs: 4, Goroutines: 50, Baseline: "redsync"}},
	{name: besideRedislock, shape: load.Config{Procs: 4, Goroutines: 50, Baseline: "redislock"}},
}

var redisGoals = []goal{
	faster(many, 60, "rueidislock"),
	fair(longer),
	faster(besideRedsync, 200, "redsync"),
}
