package page

import (
	"fmt"
	"html/template"
	"image/color"
	"strings"
	"time"

	"github.com/tierlock/tierlock/stress/internal/report"
)

// group is a section of the page. It has a heading, a text and some charts.
type group struct {
	Heading string
	Text    string
	Figures []figure
}

type figure struct {
	SVG     template.HTML
	Caption string
	Note    string
}

func (p *Page) figures() ([]group, error) {
	var groups []group
	for _, draw := range []func() (group, error){p.throughput, p.waits, p.shares, p.aways, p.packets} {
		g, err := draw()
		if err != nil {
			return nil, err
		}
		if len(g.Figures) > 0 {
			groups = append(groups, g)
		}
	}
	return groups, nil
}

func (p *Page) throughput() (group, error) {
	b := &bars{title: "Turns per second", log: true, tick: report.Amount}
	for _, c := range p.Comparisons {
		rw := row{name: c.Work}
		for i, run := range c.runs() {
			label := report.NameOf(run.Lock) + " " + rate(run.PerSecond)
			if i == 0 && c.Ratio > 0 {
				label += ", " + ratio(c.Ratio)
			}
			rw.bars = append(rw.bars, bar{value: run.PerSecond, label: label, colour: colourOf(i)})
		}
		b.rows = append(b.rows, rw)
	}
	return one("Throughput", "Turns per second, on a scale of powers of ten.", b)
}

func (p *Page) waits() (group, error) {
	g := group{Heading: "Waits", Text: "From asking for the lock to having it: how long a share of all waits took at most, " +
		"up to the longest one."}
	for _, c := range p.Comparisons {
		if len(c.Curve) == 0 || c.Baseline != nil && len(c.Baseline.Curve) == 0 {
			continue
		}
		svg, err := drawWaits(c)
		if err != nil {
			return g, err
		}
		g.Figures = append(g.Figures, figure{SVG: template.HTML(svg), Caption: c.Work})
	}
	return g, nil
}

func (p *Page) shares() (group, error) {
	g := group{Heading: "Shares", Text: "Of all turns, per process. The line is an equal share; Jain's index is 1 if all are."}
	for _, c := range p.Comparisons {
		n := len(c.PerProcess)
		if n < 2 {
			continue
		}
		b := &bars{title: "Share per process, " + c.Work, line: 1 / float64(n), legend: percent(1 / float64(n))}
		for process := range n {
			rw := row{name: fmt.Sprint("process ", process+1)}
			for i, run := range c.runs() {
				share := share(run, process)
				rw.bars = append(rw.bars, bar{value: share, label: report.NameOf(run.Lock) + " " + percent(share), colour: colourOf(i)})
			}
			b.rows = append(b.rows, rw)
		}
		svg, err := b.draw()
		if err != nil {
			return g, err
		}
		var indices []string
		for _, run := range c.runs() {
			indices = append(indices, report.NameOf(run.Lock)+" "+report.Amount(run.Jain))
		}
		g.Figures = append(g.Figures, figure{template.HTML(svg), c.Work, "Jain index: " + strings.Join(indices, ", ")})
	}
	return g, nil
}

func share(r *report.Result, process int) float64 {
	var sum int64
	for _, n := range r.PerProcess {
		sum += n
	}
	if sum == 0 || process >= len(r.PerProcess) {
		return 0
	}
	return float64(r.PerProcess[process]) / float64(sum)
}

func (p *Page) aways() (group, error) {
	b := &bars{title: "Longest time away", log: true, tick: func(v float64) string { return report.Duration(time.Duration(v)) }}
	for _, c := range p.Comparisons {
		rw := row{name: c.Work}
		for i, run := range c.runs() {
			if run.Away == nil || run.Away.Max == 0 {
				continue
			}
			label := report.NameOf(run.Lock) + " " + report.Duration(time.Duration(run.Away.Max))
			if run.AwayBound > 0 {
				label += " of " + report.Duration(time.Duration(run.AwayBound))
			}
			rw.bars = append(rw.bars, bar{float64(run.Away.Max), label, colourOf(i), float64(run.AwayBound)})
		}
		if len(rw.bars) > 0 {
			b.rows = append(b.rows, rw)
		}
	}
	return one("Longest time away", "The longest that a process was without the lock while others had it. The mark is the bound: "+
		"for each other process a hand-off budget, two sections and the longest of the hand-overs that were measured before.", b)
}

func (p *Page) packets() (group, error) {
	b := &bars{title: "Packets per turn", log: true, tick: report.Amount}
	for _, c := range p.Comparisons {
		rw := row{name: c.Work}
		for i, run := range c.runs() {
			if run.Packets == nil {
				continue
			}
			label := report.NameOf(run.Lock) + " " + report.Amount(*run.Packets)
			rw.bars = append(rw.bars, bar{value: *run.Packets, label: label, colour: colourOf(i)})
		}
		if len(rw.bars) > 0 {
			b.rows = append(b.rows, rw)
		}
	}
	return one("Packets per turn", "Received and sent by the servers, on a scale of powers of ten.", b)
}

// one(heading, text, b) returns a group with a single chart. If the chart would be empty, the group has no chart.
func one(heading, text string, b *bars) (group, error) {
	g := group{Heading: heading, Text: text}
	if len(b.rows) == 0 {
		return g, nil
	}
	svg, err := b.draw()
	g.Figures = []figure{{SVG: template.HTML(svg)}}
	return g, err
}

func colourOf(run int) color.Color {
	if run == 0 {
		return accent
	}
	return grey
}

// Lock is the data about one lock in a [Picture].
type Lock struct {
	Name      string
	Ours      bool
	PerSecond float64
	WaitP99   time.Duration
}

// Picture draws a picture for a README. For each lock it shows how often the lock is acquired per second, and how long an acquisition
// takes at the 99th percentile. The two kinds of values have different scales.
func Picture(title string, locks []Lock) (string, error) {
	most, longest := 1.0, time.Nanosecond
	for _, l := range locks {
		most, longest = max(most, l.PerSecond), max(longest, l.WaitP99)
	}
	b := &bars{title: title}
	for _, l := range locks {
		colour := colourOf(1)
		if l.Ours {
			colour = colourOf(0)
		}
		b.rows = append(b.rows, row{l.Name, []bar{
			{value: l.PerSecond / most, label: rate(l.PerSecond), colour: colour},
			{value: l.WaitP99.Seconds() / longest.Seconds(), label: "p99 of the wait " + report.Duration(l.WaitP99), colour: muted},
		}})
	}
	return b.draw()
}
