package bench

import (
	"github.com/tierlock/tierlock/stress/internal/report"
)

// goal is a limit for a figure. Each run has to meet it.
type goal struct {
	work, lock, figure string
	limit              float64
	atMost             bool   // limit is the highest value that is allowed; otherwise the lowest one
	than               string // the value is divided by the same figure of this lock; "" for no division
}

func faster(work, lock string, limit float64, than string) goal {
	return goal{work: work, lock: lock, figure: perSecond, limit: limit, than: than}
}

func atLeast(work, lock, figure string, limit float64) goal {
	return goal{work: work, lock: lock, figure: figure, limit: limit}
}

func atMost(work, lock, figure string, limit float64) goal {
	return goal{work: work, lock: lock, figure: figure, limit: limit, atMost: true}
}

// judged is a goal together with the values that the runs had.
type judged struct {
	goal
	runs []float64
	met  bool // every run meets the goal
}

// judge checks the measurements against the goal. A run without the figure misses the goal.
func (g goal) judge(b *benchmark) judged {
	j := judged{goal: g, runs: b.figure(g.work, g.lock, g.figure)}
	if g.than != "" {
		j.runs = quotients(j.runs, b.figure(g.work, g.than, g.figure))
	}
	j.met = len(j.runs) == b.Rounds
	for _, v := range j.runs {
		j.met = j.met && (g.atMost && v <= g.limit || !g.atMost && v >= g.limit)
	}
	return j
}

// quotients divides values by divisors. Two numbers with the same index are of the same run.
func quotients(values, divisors []float64) (q []float64) {
	for i := range min(len(values), len(divisors)) {
		if divisors[i] > 0 {
			q = append(q, values[i]/divisors[i])
		}
	}
	return q
}

// The method columns returns the row for this goal in the table of goals.
func (j judged) columns() []string {
	text := func(v float64) string { return report.Rounded(v, 4) } // four digits, so that a missed goal is visible
	what, sign, verdict := j.figure, "≥ ", "met"
	if j.than != "" {
		what += ", against " + j.than
		text = func(v float64) string { return report.Rounded(v, 4) + " ×" }
	}
	if j.atMost {
		sign = "≤ "
	}
	if !j.met {
		verdict = "**missed**"
	}
	return []string{j.work, j.lock, what, sign + text(j.limit), span(j.runs, text), verdict}
}
