// Package durations collects durations in histograms and summarizes them.
package durations

import (
	"math"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Histogram holds durations from 1 ns to 1 h, with an error of at most one per cent.
type Histogram struct{ buckets *hdrhistogram.Histogram }

// Snapshot is a histogram that can be sent from one process to another.
type Snapshot = hdrhistogram.Snapshot

// NewHistogram returns an empty histogram.
func NewHistogram() *Histogram {
	return &Histogram{hdrhistogram.New(1, int64(time.Hour), 2)}
}

// Keep adds the duration d to the histogram. If d is longer than an hour, Keep adds an hour.
func (h *Histogram) Keep(d time.Duration) {
	_ = h.buckets.RecordValue(min(d.Nanoseconds(), h.buckets.HighestTrackableValue())) // the only possible error is a value that is too high
}

// Count returns the number of durations.
func (h *Histogram) Count() int64 { return h.buckets.TotalCount() }

// Export copies the histogram.
func (h *Histogram) Export() *Snapshot { return h.buckets.Export() }

// Merge adds all durations of another histogram to this one.
func (h *Histogram) Merge(s *Snapshot) { h.buckets.Merge(hdrhistogram.Import(s)) }

// Quantiles summarize a histogram, in nanoseconds. If the histogram is empty, all are zero.
type Quantiles struct {
	P50 int64 `json:"p50"`
	P90 int64 `json:"p90"`
	P99 int64 `json:"p99"`
	Max int64 `json:"max"`
}

// Quantile is one point of a distribution: the fraction Q of all durations is at most NS nanoseconds long.
type Quantile struct {
	Q  float64 `json:"q"`
	NS int64   `json:"ns"`
}

// Quantiles returns a summary of the histogram.
func (h *Histogram) Quantiles() Quantiles {
	return Quantiles{
		P50: h.buckets.ValueAtQuantile(50), P90: h.buckets.ValueAtQuantile(90), P99: h.buckets.ValueAtQuantile(99), Max: h.buckets.Max(),
	}
}

// Curve returns the distribution as at most 40 points. The points are the closer together the nearer they are to 1. The last one is the
// longest duration.
func (h *Histogram) Curve() []Quantile {
	n := float64(h.Count())
	if n == 0 {
		return nil
	}
	var curve []Quantile
	for i := range 39 {
		rest := math.Pow(2, -float64(i)/2) // the fraction of durations above this point
		if rest*n < 1 {
			break
		}
		curve = append(curve, Quantile{1 - rest, h.buckets.ValueAtQuantile(100 * (1 - rest))})
	}
	return append(curve, Quantile{1, h.buckets.Max()})
}
