package judge

import (
	"time"

	"github.com/tierlock/tierlock/stress/internal/durations"
	"github.com/tierlock/tierlock/stress/internal/report"
	"github.com/tierlock/tierlock/stress/internal/rule"
)

// totals are sums over all workers. They are kept apart for exclusive sections (alone) and for sections that others could share.
type totals struct {
	alone, shared           []int64 // turns per process
	aloneWaits, sharedWaits *durations.Histogram
	inSection, used         time.Duration // see [evidence.Tally]
}

func newTotals(processes int) *totals {
	return &totals{
		alone: make([]int64, processes), shared: make([]int64, processes),
		aloneWaits: durations.NewHistogram(), sharedWaits: durations.NewHistogram(),
	}
}

func (t *totals) turns(alone bool) []int64 {
	if alone {
		return t.alone
	}
	return t.shared
}

func (t *totals) waits(alone bool) *durations.Histogram {
	if alone {
		return t.aloneWaits
	}
	return t.sharedWaits
}

// The method report writes the sums into the result of a run that took elapsed.
func (t *totals) report(r *report.Result, rule rule.Rule, elapsed time.Duration) {
	r.Duration = elapsed.Nanoseconds()
	all := newSide(t.alone, t.shared, elapsed)
	waits := durations.NewHistogram()
	for _, h := range []*durations.Histogram{t.aloneWaits, t.sharedWaits} {
		waits.Merge(h.Export())
	}
	r.Acquisitions, r.PerSecond, r.PerProcess, r.Jain = all.Acquisitions, all.PerSecond, all.PerProcess, all.Jain
	r.Wait, r.Curve = waits.Quantiles(), waits.Curve()
	if elapsed > 0 {
		r.Inside = t.inSection.Seconds() / elapsed.Seconds() / float64(r.Paths)
		r.Busy = t.used.Seconds() / elapsed.Seconds() / float64(r.Paths) / float64(rule.Room)
	}
	if r.Reads != nil {
		r.Readers, r.Writers = newSide(t.shared, nil, elapsed), newSide(t.alone, nil, elapsed)
		r.Readers.Wait, r.Writers.Wait = t.sharedWaits.Quantiles(), t.aloneWaits.Quantiles()
	}
}

// newSide sums up the acquisitions of each process.
func newSide(some, others []int64, elapsed time.Duration) *report.Side {
	s := &report.Side{PerProcess: make([]int64, len(some))}
	for _, turns := range [][]int64{some, others} {
		for i, n := range turns {
			s.PerProcess[i] += n
			s.Acquisitions += n
		}
	}
	if elapsed > 0 {
		s.PerSecond = float64(s.Acquisitions) / elapsed.Seconds()
	}
	s.Jain = jain(s.PerProcess)
	return s
}
