package bench

import (
	"fmt"
	"math"
	"slices"

	"github.com/tierlock/tierlock/stress/internal/report"
	"github.com/tierlock/tierlock/stress/internal/report/page"
)

// goal is a figure of a round and how it ought to be.
type goal struct {
	trial  string
	figure string
	limit  float64
	atMost bool // else at least
	unit   string
	of     func(round) float64
	beside func(round) float64 // the peer's; nil without
}

// round has the results of all trials, once.
type round map[string]*report.Result

var goals = []goal{
	faster(alone, 1000, zkLock),
	faster(many, 200, zkLock),
	fair(many),
	{
		trial: many, figure: "time away of 99 in 100, as a share of its bound", limit: 1, atMost: true,
		of: func(r round) float64 { return share(r[many].Away.P99, r[many].AwayBound) },
	},
	busy(longer, 90),
	busy(patient, 95),
	faster(strictly, 1.5, zkLock),
	faster(single, 1.05, zkLock),
	faster(looped, 1000, zkLock),
	handOver(bouncing, 1.25, "a quorum write", false),
	{
		trial: crowded, figure: "packets per turn against 4 × 50", limit: 1.1, atMost: true, unit: " ×",
		of: func(r round) float64 { return *r[crowded].Packets / *r[strictly].Packets },
	},
	// Each turn is a hand-over here. The first nodes have to be created too.
	{
		trial: crowded, figure: "writes per turn", limit: 1.01, atMost: true,
		of:     func(r round) float64 { return *r[crowded].Writes },
		beside: func(r round) float64 { return *r[strictly].Baseline.Writes },
	},
	faster(spread, 1.3, zkLock),
	faster(shared, 1.7, zkLock),
	faster(remote, 1.5, zkLock),
	inRTT(remote, "median Acquire", 1.2, func(r *report.Result) int64 { return r.Wait.P50 }),
	inRTT(remote, "median Release", 1.2, func(r *report.Result) int64 { return r.Release.P50 }),
	inRTT(handed, "median hand-over", 1.25, func(r *report.Result) int64 { return r.HandOver.P50 }),
	faster(reading, 0.8, tierMutex),
	faster(readingMost, 1, tierMutex),
	{
		trial: readingLonger, figure: "turns per second against a writer alone and nine readers at once, in turn", limit: 90, unit: " %",
		of: func(r round) float64 { return 100 * r[readingLonger].PerSecond / nineAtOnce(r[longer]) },
	},
	faster(readingMostLonger, 20, tierMutex),
	{
		trial: permitted, figure: "permits in use", limit: 90, unit: " %",
		of: func(r round) float64 { return 100 * r[permitted].Busy },
	},
}

const (
	zkLock    = "zk.Lock"
	tierMutex = "the mutex"
)

// nineAtOnce is ten turns in two sections, per second, each as long as those of a mutex were: to sleep for a millisecond takes longer.
func nineAtOnce(mutex *report.Result) float64 { return 5 * mutex.PerSecond / mutex.Inside }

func faster(trial string, limit float64, than string) goal {
	return goal{
		trial: trial, figure: "turns per second against " + than, limit: limit, unit: " ×",
		of: func(r round) float64 { return r[trial].Ratio },
	}
}

func fair(trial string) goal {
	return goal{
		trial: trial, figure: "Jain index over the processes", limit: 0.99,
		of:     func(r round) float64 { return r[trial].Jain },
		beside: func(r round) float64 { return r[trial].Baseline.Jain },
	}
}

// handOver holds the way of the lock to another process against a write, and so that of the
// peer, if there is one.
func handOver(trial string, limit float64, write string, peer bool) goal {
	against := func(of *report.Result) float64 { return share(of.HandOver.P50, of.QuorumWrite) }
	g := goal{
		trial: trial, figure: "median hand-over against " + write, limit: limit, atMost: true, unit: " ×",
		of: func(r round) float64 { return against(r[trial]) },
	}
	if peer {
		g.beside = func(r round) float64 { return against(r[trial].Baseline) }
	}
	return g
}

func busy(trial string, limit float64) goal {
	return goal{
		trial: trial, figure: "time with somebody in the section", limit: limit, unit: " %",
		of:     func(r round) float64 { return 100 * r[trial].Busy },
		beside: func(r round) float64 { return 100 * r[trial].Baseline.Busy },
	}
}

// inRTT holds a time against the round trip.
func inRTT(trial, figure string, limit float64, took func(*report.Result) int64) goal {
	return goal{
		trial: trial, figure: figure, limit: limit, atMost: true, unit: " RTT",
		of:     func(r round) float64 { return share(took(r[trial]), r[trial].RTT) },
		beside: func(r round) float64 { return share(took(r[trial].Baseline), r[trial].RTT) },
	}
}

func share(n, of int64) float64 { return float64(n) / float64(of) }

// judged is a goal and what was measured.
type judged struct {
	Work   string    `json:"work"`
	Figure string    `json:"figure"`
	Limit  float64   `json:"goal"`
	AtMost bool      `json:"at_most"`
	Runs   []float64 `json:"runs"`
	Median float64   `json:"median"`
	Peer   *float64  `json:"peer_median"` // null without a peer
	Met    bool      `json:"met"`

	unit string
}

// judge holds the figure of some rounds against the goal.
func (g goal) judge(all []round) (judged, error) {
	var values, peers []float64
	for _, r := range all {
		values = append(values, g.of(r))
		if g.beside != nil {
			peers = append(peers, g.beside(r))
		}
	}
	return g.hold(values, peers)
}

// hold fails if a figure could not be measured.
func (g goal) hold(values, peers []float64) (judged, error) {
	j := judged{Work: g.trial, Figure: g.figure, Limit: g.limit, AtMost: g.atMost, Runs: values, unit: g.unit}
	for _, v := range slices.Concat(values, peers) {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return j, fmt.Errorf("%s, %s: could not be measured", g.trial, g.figure)
		}
	}
	if len(values) == 0 {
		return j, fmt.Errorf("%s, %s: was not measured", g.trial, g.figure)
	}
	j.Median = median(values)
	if peers != nil {
		peer := median(peers)
		j.Peer = &peer
	}
	j.Met = j.Median >= j.Limit
	if j.AtMost {
		j.Met = j.Median <= j.Limit
	}
	return j, nil
}

// median is the lower one of an even number.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[(len(sorted)-1)/2]
}

func (j judged) drawn() page.Goal {
	text := func(v float64) string { return report.Rounded(v, 4) + j.unit } // so that what misses its goal looks like it
	g := page.Goal{
		Work: j.Work, Figure: j.Figure, Goal: "≥ " + text(j.Limit), Measured: text(j.Median), Met: j.Met,
	}
	if j.AtMost {
		g.Goal = "≤ " + text(j.Limit)
	}
	if j.Peer != nil {
		g.Beside = text(*j.Peer)
	}
	return g
}
