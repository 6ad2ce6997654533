package main

import (
	"math"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Quantiles sum up a distribution of durations, in nanoseconds; all zero if it is empty.
type Quantiles struct {
	P50 int64 `json:"p50"`
	P90 int64 `json:"p90"`
	P99 int64 `json:"p99"`
	Max int64 `json:"max"`
}

// Quantile is one point of a distribution: a share q of it is at most so many
// nanoseconds.
type Quantile struct {
	Q  float64 `json:"q"`
	NS int64   `json:"ns"`
}

// newHistogram holds durations from 1 ns to 1 h, to within one per cent.
func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, int64(time.Hour), 2)
}

func keep(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(min(d.Nanoseconds(), h.HighestTrackableValue())) // which is the only error
}

func quantilesOf(h *hdrhistogram.Histogram) Quantiles {
	return Quantiles{
		P50: h.ValueAtQuantile(50), P90: h.ValueAtQuantile(90), P99: h.ValueAtQuantile(99), Max: h.Max(),
	}
}

// curveOf is the distribution in at most 40 points, which lie the closer to 1 the closer
// they are to one another, down to the single longest duration.
func curveOf(h *hdrhistogram.Histogram) []Quantile {
	n := float64(h.TotalCount())
	if n == 0 {
		return nil
	}
	var curve []Quantile
	for i := range 39 {
		rest := math.Pow(2, -float64(i)/2) // the share above
		if rest*n < 1 {
			break
		}
		curve = append(curve, Quantile{1 - rest, h.ValueAtQuantile(100 * (1 - rest))})
	}
	return append(curve, Quantile{1, h.Max()})
}
