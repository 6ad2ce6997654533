package page

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/stress/internal/durations"
	"github.com/tierlock/tierlock/stress/internal/report"
)

func TestPageShowsWhatIsKnown(t *testing.T) {
	need.Has(t, "the page", html(t, sample()),
		"A title", "A summary", "4 × 50", "1 × 100 &lt;b&gt;", "123,000/s", "615 ×", "0.0071", "13.6", "98.7 %",
		"Jain index: tier 1, zk.Lock 0.976", "42 ms of 311 ms", "turns per second", "≥ 200 ×", "missed", "AMD &amp; Co")
}

func TestPageNeedsNothingElse(t *testing.T) {
	page := html(t, sample())
	elsewhere := regexp.MustCompile(`(?i)(src|href|url|@import)\s*[=(:]?\s*["']?(https?:)?//[^"')]*|<script|<link`)
	need.Empty(t, "references to elsewhere", elsewhere.FindAllString(page, -1))
}

func TestPicturesAreXML(t *testing.T) {
	groups := need.Get(sample().figures())(t)
	n := 0
	for _, g := range groups {
		for _, f := range g.Figures {
			checkXML(t, string(f.SVG))
			n++
		}
	}
	need.Equal(t, "pictures", n, 2+2+1+1+1-1) // waits of two, else one each, but no share of a single process
	p := sample()
	far := &report.Result{Lock: "mutex", PerSecond: 123_000, Ratio: 7, Baseline: &report.Result{Lock: "other"}}
	p.Comparisons = append(p.Comparisons, Comparison{"9 × 9", far})
	turns := need.Get(p.TurnsSVG(map[string]string{"4 × 50": "ours", "9 × 9": "ours, far"}))(t)
	checkXML(t, turns)
	for text, want := range map[string]bool{">ours<": true, ">123,000<": true, ">zk.Lock<": true, ">ours, far<": true, "1 × 100": false,
		"other": false} {
		need.Equal(t, fmt.Sprintf("the picture has %q", text), strings.Contains(turns, text), want)
	}
}

func TestPageOfARunWithoutAnything(t *testing.T) {
	html(t, &Page{Comparisons: []Comparison{{"none", &report.Result{Lock: "tier", Verdict: "FAIL"}}}})
}

func TestDrawingOfTheHistoryIsShown(t *testing.T) {
	dir := t.TempDir()
	r := &report.Result{
		Chaos: &report.Chaos{History: "Illegal", Drawing: filepath.Join(dir, "drawn.html")}, Environment: &report.Environment{},
	}
	name := filepath.Join(dir, "page.html")
	need.OK(t, OfRun(r).WriteFile(name))
	need.Has(t, "the page", string(need.Get(os.ReadFile(name))(t)), `<a href="drawn.html">`)
	for _, asJSON := range []bool{false, true} {
		var text strings.Builder
		need.OK(t, r.Write(&text, asJSON))
		need.Has(t, fmt.Sprintf("JSON %t", asJSON), text.String(), r.Chaos.Drawing)
		r.Chaos.Drawing, text = "", strings.Builder{}
		need.OK(t, r.Write(&text, asJSON))
		need.That(t, "a drawing where there is none: "+text.String(), !strings.Contains(text.String(), "draw"))
		r.Chaos.Drawing = filepath.Join(dir, "drawn.html")
	}
}

func sample() *Page {
	packets, peers := 0.0071, 13.6
	waits := []durations.Quantile{{Q: 0, NS: 1e3}, {Q: 0.5, NS: 90e3}, {Q: 0.9, NS: 1e6}, {Q: 1, NS: 40e6}}
	return &Page{
		Title: "A title", Summary: "A summary.",
		Goals: []Goal{{Work: "4 × 50", Figure: "turns per second", Goal: "≥ 200 ×", Measured: "190 ×", Beside: "200/s"}},
		Comparisons: []Comparison{
			{"4 × 50", &report.Result{
				Lock: "tier", Verdict: "PASS", PerSecond: 123_000, PerProcess: []int64{100, 101, 99, 100}, Jain: 1, Busy: 0.987,
				Curve: waits, Away: &durations.Quantiles{Max: 42e6}, AwayBound: 311e6, Packets: &packets, Ratio: 615,
				Baseline: &report.Result{
					Lock: "zk", PerSecond: 200, PerProcess: []int64{10, 12, 9, 8}, Jain: 0.976, Curve: waits, Packets: &peers,
				},
			}},
			{"1 × 100 <b>", &report.Result{Lock: "tier", PerSecond: 5, PerProcess: []int64{7}, Jain: 1, Curve: waits}},
		},
		Environment: []report.Fact{{Name: "processor", Value: "AMD & Co"}},
	}
}

func html(t *testing.T, r *Page) string {
	t.Helper()
	var b bytes.Buffer
	need.OK(t, r.WriteHTML(&b))
	return b.String()
}

func checkXML(t *testing.T, text string) {
	t.Helper()
	for decoder := xml.NewDecoder(strings.NewReader(text)); ; {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		need.Must(t, fmt.Sprintf("%v in:\n%s", err, text), err == nil)
	}
}
