package report

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Write writes the result, either as JSON or as text for people.
func (r *Result) Write(w io.Writer, asJSON bool) error {
	if !asJSON {
		return r.print(w)
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}

func (r *Result) pathsText() string {
	if r.Zipf == 0 {
		return fmt.Sprint(r.Paths)
	}
	return fmt.Sprintf("%d by Zipf %g", r.Paths, r.Zipf)
}

// print writes the result as text for people. The last line is the verdict.
func (r *Result) print(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(table, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	row("run", "%s, lock %s%s, procs %d, goroutines %d, paths %s, cs %v, think %v, rtt %v, duration %v, seed %d",
		r.Store, r.Lock, r.lockText(), r.Procs, r.Goroutines, r.pathsText(), ns(r.Section), ns(r.Think), ns(r.RTT), ns(r.Duration), r.Seed)
	row("throughput", "%s/s, %d acquisitions, %s", rate(r.PerSecond), r.Acquisitions, r.usageText())
	r.Readers.row("readers", row)
	r.Writers.row("writers", row)
	row("wait", "p50 %v  p90 %v  p99 %v  max %v", ns(r.Wait.P50), ns(r.Wait.P90), ns(r.Wait.P99), ns(r.Wait.Max))
	if q := r.Release; q != nil {
		row("release", "p50 %v  p90 %v  p99 %v  max %v", ns(q.P50), ns(q.P90), ns(q.P99), ns(q.Max))
	}
	row("fairness", "Jain index %.4f, over goroutines %.4f, per process %s", r.Jain, r.JainInside,
		strings.Trim(fmt.Sprint(r.PerProcess), "[]"))
	if r.HandOver.Max > 0 {
		row("hand-over", "%s", r.handOverText())
	}
	if r.Packets != nil {
		row("traffic", "%.4g packets and %.4g writes per acquisition", *r.Packets, *r.Writes)
	}
	if b := r.Baseline; b != nil {
		row("baseline", "%s %s/s, p99 %v; ratio %.4g", b.Lock, rate(b.PerSecond), ns(b.Wait.P99), r.Ratio)
	}
	row("safety", "overlaps %d, lost updates %d, torn reads %d, token regressions %d, left behind %d",
		r.Overlaps, r.LostUpdates, r.TornReads, r.TokenRegressions, r.LeakedNodes)
	if r.Chaos != nil {
		r.Chaos.rows(row)
	}
	if r.Lost > 0 {
		row("lost", "%d holds", r.Lost)
	}
	for _, kind := range slices.Sorted(maps.Keys(r.Errors)) {
		row("error", "%d × %s", r.Errors[kind], kind)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, strings.TrimSuffix(r.Verdict+": "+strings.Join(r.Violations(), "; "), ": "))
	return err
}

// lockText returns what a reader has to know of the lock in addition to its kind.
func (r *Result) lockText() string {
	switch {
	case r.Reads != nil:
		return fmt.Sprintf(" with %.4g %% reads", 100**r.Reads)
	case r.Permits > 0:
		return fmt.Sprintf(" of %d permits, up to %d at once", r.Permits, r.Weight)
	}
	return ""
}

func (r *Result) usageText() string {
	switch {
	case r.Reads != nil:
		return fmt.Sprintf("%.3g inside on average", r.Inside)
	case r.Permits > 0:
		return fmt.Sprintf("%.3g permits in use on average, %.1f %%", r.Busy*float64(r.Permits), 100*r.Busy)
	}
	return fmt.Sprintf("in the section %.1f %% of the time", 100*r.Busy)
}

// row prints the result of the readers or of the writers. For a lock that is no reader/writer lock, s is nil and nothing is printed.
func (s *Side) row(name string, row func(name, format string, args ...any)) {
	if s == nil {
		return
	}
	row(name, "%s/s, Jain index %.4f, wait p50 %v  p99 %v  max %v",
		rate(s.PerSecond), s.Jain, ns(s.Wait.P50), ns(s.Wait.P99), ns(s.Wait.Max))
}

func (r *Result) handOverText() string {
	text := fmt.Sprintf("p50 %v  p99 %v  max %v", ns(r.HandOver.P50), ns(r.HandOver.P99), ns(r.HandOver.Max))
	if r.Away != nil {
		text += fmt.Sprintf("; away p99 %v  max %v", ns(r.Away.P99), ns(r.Away.Max))
	}
	if r.AwayBound > 0 {
		text += fmt.Sprintf(", due %v", ns(r.AwayBound))
		if !r.AwayJudged {
			text += " (not judged: the machine is busy, or the run too short)"
		}
	}
	return text
}

// ns turns a number of nanoseconds into a duration with three or four significant digits.
func ns(n int64) time.Duration {
	d := time.Duration(n)
	for unit := time.Duration(1); unit <= time.Second; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit)
		}
	}
	return d.Round(time.Second)
}

func rate(perSecond float64) string {
	if perSecond < 100 {
		return fmt.Sprintf("%.1f", perSecond)
	}
	return fmt.Sprintf("%.0f", perSecond)
}
