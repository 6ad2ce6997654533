package page

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/need"
)

func TestPageShowsWhatIsKnown(t *testing.T) {
	need.Has(t, "the page", html(t, sample()),
		"A title", "A summary", "4 × 50", "1 × 100 &lt;b&gt;", "123,000/s", "615 ×", "0.0071", "13.6", "98.7 %",
		"Jain index: tier 1, zk 0.976", "42 ms of 311 ms", "turns per second", "≥ 200 ×", "missed", "AMD &amp; Co")
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
	p.Comparisons = append(p.Comparisons, Comparison{Work: "9 × 9", Ratio: 7, Run: p.Comparisons[0].Run, Peer: &Run{Lock: "other"}})
	turns := need.Get(p.TurnsSVG(map[string]string{"4 × 50": "ours", "9 × 9": "ours, far"}))(t)
	checkXML(t, turns)
	for text, want := range map[string]bool{">ours<": true, ">123,000<": true, ">zk<": true, ">ours, far<": true, "1 × 100": false,
		"other": false} {
		need.Equal(t, fmt.Sprintf("the picture has %q", text), strings.Contains(turns, text), want)
	}
}

func TestPageOfARunWithoutAnything(t *testing.T) {
	html(t, &Page{Comparisons: []Comparison{{Work: "none", Run: Run{Lock: "tier", Verdict: "FAIL"}}}})
}

func TestNumbers(t *testing.T) {
	for _, test := range []struct{ got, want string }{
		{Amount(0), "0"},
		{Amount(0.00001234), "0.0000123"},
		{Amount(0.000123), "0.000123"},
		{Amount(0.9996), "1"},
		{Amount(2.40), "2.4"},
		{Amount(999.6), "1,000"},
		{Amount(1234567), "1,230,000"},
		{Rounded(1.0123, 4), "1.012"},
		{Duration(0), "0 ns"},
		{Duration(999), "999 ns"},
		{Duration(1500 * time.Microsecond), "1.5 ms"},
		{Duration(90 * time.Second), "90 s"},
		{percent(0.9876), "98.8 %"},
	} {
		need.Equal(t, "said", test.got, test.want)
	}
}

func sample() *Page {
	packets, peers := 0.0071, 13.6
	waits := []Quantile{{0, time.Microsecond}, {0.5, 90 * time.Microsecond}, {0.9, time.Millisecond}, {1, 40 * time.Millisecond}}
	return &Page{
		Title: "A title", Summary: "A summary.",
		Goals: []Goal{{Work: "4 × 50", Figure: "turns per second", Goal: "≥ 200 ×", Measured: "190 ×", Beside: "200/s"}},
		Comparisons: []Comparison{
			{
				Work: "4 × 50", Ratio: 615,
				Run: Run{
					Lock: "tier", Verdict: "PASS", PerSecond: 123_000, PerProcess: []int64{100, 101, 99, 100}, Jain: 1, Busy: 0.987,
					Wait: waits, Away: 42 * time.Millisecond, AwayBound: 311 * time.Millisecond, Packets: &packets,
				},
				Peer: &Run{Lock: "zk", PerSecond: 200, PerProcess: []int64{10, 12, 9, 8}, Jain: 0.976, Wait: waits, Packets: &peers},
			},
			{Work: "1 × 100 <b>", Run: Run{Lock: "tier", PerSecond: 5, PerProcess: []int64{7}, Jain: 1, Wait: waits}},
		},
		Environment: []Fact{{"processor", "AMD & Co"}},
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
