// Package page draws what measurements of locks have found: as one HTML page that
// needs nothing else, neither scripts nor a network, and as a picture for a README.
package page

import (
	_ "embed"
	"html/template"
	"io"
	"time"
)

// Page is a report.
type Page struct {
	Title       string
	Summary     string
	History     string // page beside this one that shows an illegal history, "" for none
	Goals       []Goal // may be empty
	Peer        string // what goals are held beside, "" for nothing
	Comparisons []Comparison
	Environment []Fact
}

// Goal is what one figure is held against.
type Goal struct {
	Work     string
	Figure   string
	Goal     string
	Measured string
	Beside   string // the peer's figure, if there is one
	Met      bool
}

// Comparison is a lock, and if Peer is not nil another one, at the same work.
type Comparison struct {
	Work  string
	Ratio float64 // of the rates, zero without a peer
	Run   Run
	Peer  *Run
}

// Run is what one lock did.
type Run struct {
	Lock       string
	Verdict    string
	PerSecond  float64
	PerProcess []int64 // turns
	Jain       float64
	Busy       float64    // share of the time in the critical section, or of the permits in use; zero if it does not apply
	Wait       []Quantile // in ascending order; the last one is the longest wait
	HandOver   time.Duration
	Away       time.Duration // the longest, zero if it does not apply
	AwayBound  time.Duration // zero if there is none
	Packets    *float64      // per turn; nil if unknown
	Writes     *float64      // likewise
}

// Quantile says that a share Q of all waits took at most so long.
type Quantile struct {
	Q  float64
	At time.Duration
}

// Fact is a property of where the measuring was done.
type Fact struct{ Name, Value string }

//go:embed layout.html
var layoutText string

var layout = template.Must(template.New("layout").Funcs(template.FuncMap{
	"rate": rate, "ratio": ratio, "percent": percent, "duration": Duration, "amount": Amount,
	"quantile": func(r Run, q float64) string { return Duration(r.wait(q)) },
	"runs":     Comparison.runs,
}).Parse(layoutText))

// WriteHTML writes the page.
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

func (c Comparison) runs() []Run {
	if c.Peer == nil {
		return []Run{c.Run}
	}
	return []Run{c.Run, *c.Peer}
}

// wait is the first known quantile at or above q.
func (r Run) wait(q float64) time.Duration {
	for _, p := range r.Wait {
		if p.Q >= q {
			return p.At
		}
	}
	return 0
}
