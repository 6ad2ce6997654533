package page

import (
	"math"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/tierlock/tierlock/stress/internal/durations"
	"github.com/tierlock/tierlock/stress/internal/report"
)

const curveHeight = vg.Length(210)

// drawWaits draws the distribution of waits: for each fraction of all waits, the longest wait in that fraction. Each step to the right
// leaves a tenth as many waits above it.
func drawWaits(c Comparison) (string, error) {
	p := newPlot()
	p.Y.Scale = plot.LogScale{}
	p.X.Label.Text, p.X.Label.Padding = "share of all waits", 4
	p.X.Padding, p.Y.Padding = 3, 3
	p.Add(faintGrid())
	for i, run := range c.runs() {
		line, err := plotter.NewLine(curvePoints(run.Curve))
		if err != nil {
			return "", err
		}
		line.Color, line.Width = colourOf(i), 2
		p.Add(line)
	}
	p.Y.Min = math.Pow(10, math.Floor(math.Log10(p.Y.Min)))
	p.Y.Max = max(10*p.Y.Min, math.Pow(10, math.Ceil(math.Log10(p.Y.Max))))
	p.X.Min = 0
	p.X.Tick.Marker, p.Y.Tick.Marker = shareTicks(p.X.Max), timeTicks(p.Y.Min, p.Y.Max)
	for i, run := range c.runs() {
		points := curvePoints(run.Curve)
		end := points[len(points)-1]
		over := vg.Point{Y: 5}
		if c.Baseline != nil && crowded(end, curvePoints(c.runs()[1-i].Curve), p) {
			over.Y = -16
		}
		text := report.NameOf(run.Lock) + ", at most " + report.Duration(wait(run, 1))
		if err := addText(p, text, end.X, end.Y, over, rightAligned(textStyle(11, ink))); err != nil {
			return "", err
		}
	}
	return drawSVG(p, curveHeight, 2, "Waits, "+c.Work)
}

// crowded reports whether a text that ends just above a point would collide with the other line. The text does not collide with the
// point's own line: to the left of the point, that line is never higher.
func crowded(end plotter.XY, other plotter.XYs, p *plot.Plot) bool {
	const high, wide = 0.15, 0.4 // shares of the picture
	for _, o := range other {
		over := math.Log10(o.Y/end.Y) / math.Log10(p.Y.Max/p.Y.Min)
		before := (end.X - o.X) / p.X.Max
		if over > 0 && over < high && before >= 0 && before < wide {
			return true
		}
	}
	return false
}

// curvePoints converts fractions to positions, such that 0, 0.9 and 0.99 have equal distances. The longest wait has the fraction 1. It
// is drawn a little to the right of the point before it.
func curvePoints(points []durations.Quantile) plotter.XYs {
	xys := make(plotter.XYs, len(points))
	for i, q := range points {
		x := -math.Log10(1 - q.Q)
		if q.Q == 1 {
			x = 0.15
			if i > 0 {
				x += xys[i-1].X
			}
		}
		xys[i] = plotter.XY{X: x, Y: float64(max(q.NS, 1))}
	}
	return xys
}

func shareTicks(last float64) plot.ConstantTicks {
	var ticks plot.ConstantTicks
	for i, text := range []string{"0", "90 %", "99 %", "99.9 %", "99.99 %", "99.999 %", "99.9999 %"} {
		if x := float64(i); x <= last {
			ticks = append(ticks, plot.Tick{Value: x, Label: text})
		}
	}
	return ticks
}

func timeTicks(from, to float64) plot.ConstantTicks {
	var ticks plot.ConstantTicks
	for v := from; v <= 1.01*to; v *= 10 {
		ticks = append(ticks, plot.Tick{Value: v, Label: report.Duration(time.Duration(math.Round(v)))})
	}
	return ticks
}
