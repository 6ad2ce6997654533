package bench

import (
	"time"

	"github.com/tierlock/tierlock/stress/internal/load"
)

// etcdTrials is the work of a benchmark on etcd, in this order.
var etcdTrials = []trial{
	{name: alone, shape: load.Config{Procs: 1, Goroutines: 100, Baseline: "etcd"}},
	{name: many, shape: load.Config{Procs: 4, Goroutines: 50, Baseline: "etcd"}},
	{name: strictly, shape: load.Config{Procs: 4, Goroutines: 50, Baseline: "etcd", HandOff: &strict}},
	{name: bouncing, shape: load.Config{Procs: 2, Goroutines: 1, Baseline: "etcd", Section: 5 * time.Millisecond, HandOff: &strict}},
}

const etcdMutex = "concurrency.Mutex"

var etcdGoals = []goal{
	faster(alone, 1000, etcdMutex),
	faster(many, 1000, etcdMutex),
	faster(strictly, 3, etcdMutex),
	handOver(bouncing, 1.5, "one Txn", true),
	{
		trial: strictly, figure: "writes per turn", limit: 1.01, atMost: true,
		of:     func(r round) float64 { return *r[strictly].Writes },
		beside: func(r round) float64 { return *r[strictly].Baseline.Writes },
	},
}
