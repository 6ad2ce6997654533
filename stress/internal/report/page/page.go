// Package page draws the results of measurements: as a self-contained HTML page without scripts, and as a picture for a README.
package page

import (
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tierlock/tierlock/stress/internal/report"
)

// Page is a report with charts.
type Page struct {
	Title       string
	Summary     string
	History     string // a page in the same directory that shows an illegal history; "" for none
	Comparisons []Comparison
	Environment []report.Fact
}

// Comparison is the result of a workload with one lock. If the result has a baseline, the page compares the two.
type Comparison struct {
	Work string
	*report.Result
}

//go:embed layout.html
var layoutText string

var layout = template.Must(template.New("layout").Funcs(template.FuncMap{
	"rate": rate, "percent": percent, "amount": report.Amount, "name": report.NameOf,
	"duration": func(ns int64) string { return report.Duration(time.Duration(ns)) },
	"quantile": func(r *report.Result, q float64) string { return report.Duration(wait(r, q)) },
	"runs":     Comparison.runs,
}).Parse(layoutText))

// WriteHTML writes the page as HTML.
func (p *Page) WriteHTML(w io.Writer) error {
	figures, err := p.figures()
	if err != nil {
		return err
	}
	return layout.Execute(w, struct {
		*Page
		Figures []group
	}{p, figures})
}

// OfRun returns a page about a single run. If the history is illegal, the page has a link to the picture of the history.
func OfRun(r *report.Result) *Page {
	p := &Page{
		Title: "stress: " + r.Verdict,
		Summary: fmt.Sprintf("%d processes with %d goroutines each, for %s, seed %d. %s",
			r.Procs, r.Goroutines, report.Duration(time.Duration(r.Duration)), r.Seed, strings.Join(r.Violations(), "; ")),
		Comparisons: []Comparison{{r.Work(), r}},
		Environment: r.Environment.Facts(),
	}
	if r.Chaos != nil && r.Chaos.Drawing != "" {
		p.History = filepath.Base(r.Chaos.Drawing)
	}
	return p
}

// WriteFile writes the page to a file.
func (p *Page) WriteFile(name string) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(p.WriteHTML(file), file.Close())
}

func (c Comparison) runs() []*report.Result {
	if c.Baseline == nil {
		return []*report.Result{c.Result}
	}
	return []*report.Result{c.Result, c.Baseline}
}

// The function wait returns the quantile q of the waits. If the curve has no point at q, wait returns the next higher point.
func wait(r *report.Result, q float64) time.Duration {
	for _, p := range r.Curve {
		if p.Q >= q {
			return time.Duration(p.NS)
		}
	}
	return 0
}

func rate(perSecond float64) string { return report.Amount(perSecond) + "/s" }

func ratio(v float64) string { return report.Amount(v) + " ×" }

func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }
