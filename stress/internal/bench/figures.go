package bench

import (
	"fmt"
	"slices"
	"time"

	"github.com/tierlock/tierlock/stress/internal/report"
)

// A figure is a number that summarizes a run. If text is set, the figure is a column of the tables.
type figure struct {
	name string
	of   func(*report.Result) (value float64, known bool)
	text func(float64) string
}

const (
	perSecond      = "per second"
	inUse          = "in use"
	waitP99        = "wait p99"
	writes         = "writes"
	packets        = "packets"
	jainProcesses  = "Jain, processes"
	jainGoroutines = "Jain, goroutines"
	awayOfBound    = "away p99 as a share of its bound"
)

var figures = []figure{
	{perSecond, func(r *report.Result) (float64, bool) { return r.PerSecond, true }, report.Amount},
	{inUse, func(r *report.Result) (float64, bool) { return r.Busy, r.Reads == nil }, percent},
	{"wait p50", func(r *report.Result) (float64, bool) { return float64(r.Wait.P50), true }, duration},
	{waitP99, func(r *report.Result) (float64, bool) { return float64(r.Wait.P99), true }, duration},
	{"wait max", func(r *report.Result) (float64, bool) { return float64(r.Wait.Max), true }, duration},
	{"away max", func(r *report.Result) (float64, bool) {
		if r.Absences == 0 {
			return 0, false
		}
		return float64(r.Away.Max), true
	}, duration},
	{packets, func(r *report.Result) (float64, bool) { return pointed(r.Packets) }, report.Amount},
	{writes, func(r *report.Result) (float64, bool) { return pointed(r.Writes) }, report.Amount},
	{jainProcesses, func(r *report.Result) (float64, bool) { return r.Jain, r.Procs > 1 }, index},
	{jainGoroutines, func(r *report.Result) (float64, bool) { return r.JainInside, true }, index},
	{awayOfBound, func(r *report.Result) (float64, bool) {
		if r.AwayBound == 0 {
			return 0, false
		}
		return float64(r.Away.P99) / float64(r.AwayBound), true
	}, nil},
}

func pointed(v *float64) (float64, bool) {
	if v == nil {
		return 0, false
	}
	return *v, true
}

func percent(v float64) string  { return report.Amount(100*v) + " %" }
func duration(v float64) string { return report.Duration(time.Duration(v)) }
func index(v float64) string    { return fmt.Sprintf("%.3f", v) }

// series has the results of all runs of a workload with one lock.
type series struct {
	Lock    string               `json:"lock"`
	Figures map[string][]float64 `json:"figures"` // the values by the name of their figure, in the order of the runs; durations in nanoseconds
}

func (s *series) add(r *report.Result) {
	for _, f := range figures {
		if v, known := f.of(r); known && (r.Acquisitions > 0 || f.name == perSecond) { // without acquisitions, waits and shares are unknown
			s.Figures[f.name] = append(s.Figures[f.name], v)
		}
	}
}

// The function span formats the median of some values and the range from the smallest to the largest.
func span(values []float64, text func(float64) string) string {
	if len(values) == 0 {
		return "–"
	}
	least, most := text(slices.Min(values)), text(slices.Max(values))
	if least == most {
		return least
	}
	return fmt.Sprintf("%s (%s–%s)", text(median(values)), least, most)
}

// median returns the median. If the number of values is even, it returns the lower of the two middle ones.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[(len(sorted)-1)/2]
}
