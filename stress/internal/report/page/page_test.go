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
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/stress/internal/durations"
	"github.com/tierlock/tierlock/stress/internal/report"
)

func TestPageShowsWhatIsKnown(t *testing.T) {
	need.Has(t, "the page", html(t, sample()),
		"A title", "A summary", "4 × 50", "1 × 100 &lt;b&gt;", "123,000/s", "615 ×", "0.0071", "13.6", "98.7 %",
		"Jain index: tier 1, zk.Lock 0.976", "42 ms of 311 ms", "AMD &amp; Co")
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
	need.Equal(t, "pictures", n, 2+2+1+1+1-1) // two for a pair of locks, otherwise one; the fractions of a single process are not drawn
}

func TestPictureHasTheWaitBesideTheRate(t *testing.T) {
	locks := []Lock{{"ours", true, 913, 304 * time.Millisecond}, {"theirs", false, 519, 449 * time.Millisecond}}
	picture := need.Get(Picture("a & b", locks))(t)
	checkXML(t, picture)
	need.Has(t, "the picture", picture, "a &amp; b", ">ours<", ">913/s<", ">p99 of the wait 304 ms<", ">theirs<", ">519/s<", "449 ms")
	checkXML(t, need.Get(Picture("of nothing", []Lock{{Name: "idle"}}))(t))
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
