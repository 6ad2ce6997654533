package page

import (
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// bars is a chart. It has one or two horizontal bars for each row.
type bars struct {
	title  string
	rows   []row
	log    bool                 // logarithmic scale, for values that differ by orders of magnitude
	tick   func(float64) string // returns the text for a value on the axis; nil: no texts
	line   float64              // a vertical line across all rows at this value, unless it is zero
	legend string               // explains the line
}

type row struct {
	name string
	bars []bar
}

type bar struct {
	value  float64
	label  string
	colour color.Color
	bound  float64 // a mark at this value, unless it is zero
}

const (
	barHeight = vg.Length(12)
	barPitch  = vg.Length(15)
	rowMargin = vg.Length(27) // for the name of the row, and a gap
)

func (b *bars) draw() (string, error) {
	p := newPlot()
	p.HideY()
	scale := b.scale()
	if err := b.addAxis(p, scale); err != nil {
		return "", err
	}
	pitch := rowMargin + vg.Length(b.barsPerRow())*barPitch
	for i, row := range b.rows {
		if err := addText(p, row.name, 0, -float64(i), vg.Point{Y: -11}, textStyle(11, ink)); err != nil {
			return "", err
		}
		for j, item := range row.bars {
			below := 17 + barHeight/2 + vg.Length(j)*barPitch
			if err := item.add(p, scale, -float64(i), below); err != nil {
				return "", err
			}
		}
	}
	p.X.Min, p.X.Max = 0, scale.at(scale.top)
	p.Y.Min, p.Y.Max = -float64(len(b.rows)), 0
	return drawSVG(p, vg.Length(len(b.rows))*pitch+22, b.left(), b.title)
}

// bars.left returns the space at the left edge. The text at the left end of the axis is centered there, so half of it needs space.
func (b *bars) left() vg.Length {
	if b.log {
		return 16
	}
	return 2
}

func (b *bars) barsPerRow() (most int) {
	for _, row := range b.rows {
		most = max(most, len(row.bars))
	}
	return most
}

// The method add draws the bar. Its distance below the line at y is below.
func (b bar) add(p *plot.Plot, scale scale, y float64, below vg.Length) error {
	chart, err := plotter.NewBarChart(plotter.Values{scale.at(b.value)}, barHeight)
	if err != nil {
		return err
	}
	chart.Horizontal, chart.XMin, chart.Offset = true, y, -below
	chart.Color, chart.LineStyle.Width = b.colour, 0
	p.Add(chart)
	if b.bound > 0 {
		p.Add(mark{scale.at(b.bound), y, below})
	}
	end := max(scale.at(b.value), scale.at(b.bound))
	return addText(p, b.label, end, y, vg.Point{X: 5, Y: -below - 4}, textStyle(11, ink))
}

func addText(p *plot.Plot, text string, x, y float64, offset vg.Point, style draw.TextStyle) error {
	labels, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{{X: x, Y: y}}, Labels: []string{text}})
	if err != nil {
		return err
	}
	labels.TextStyle[0], labels.Offset = style, offset
	p.Add(labels)
	return nil
}

// mark is a short vertical line across a bar.
type mark struct {
	x, y  float64
	below vg.Length
}

func (m mark) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	at, middle := x(m.x), y(m.y)-m.below
	c.StrokeLine2(draw.LineStyle{Color: ink, Width: 2}, at, middle-barHeight/2-2, at, middle+barHeight/2+2)
}

// scale converts values to positions on the axis.
type scale struct {
	log         bool
	bottom, top float64
}

func (b *bars) scale() scale {
	s := scale{log: b.log, bottom: math.Inf(1), top: b.line}
	for _, row := range b.rows {
		for _, bar := range row.bars {
			s.top = max(s.top, bar.value, bar.bound)
			for _, v := range []float64{bar.value, bar.bound} {
				if v > 0 {
					s.bottom = min(s.bottom, v)
				}
			}
		}
	}
	if s.top == 0 {
		return scale{bottom: 0, top: 1} // no bar has a length
	}
	// The axis begins below the smallest value, so that the shortest bar is visible, too.
	s.bottom = math.Pow(10, math.Floor(math.Log10(s.bottom/1.5)))
	return s
}

func (s scale) at(v float64) float64 {
	switch {
	case !s.log:
		return v
	case v <= s.bottom:
		return 0
	}
	return math.Log10(v / s.bottom)
}

func (b *bars) addAxis(p *plot.Plot, s scale) error {
	var ticks plot.ConstantTicks
	if s.log && b.tick != nil {
		for v := s.bottom; v <= 1.01*s.top; v *= 10 {
			ticks = append(ticks, plot.Tick{Value: s.at(v), Label: b.tick(v)})
		}
	}
	ticks = thinned(ticks, 7)
	if len(ticks) > 0 && p.X.Tick.Label.Width(ticks[0].Label)/2 > b.left() {
		ticks[0].Label = noText
	}
	p.X.Tick.Marker = ticks
	grid := faintGrid()
	grid.Horizontal.Width = 0
	p.Add(grid)
	if b.line == 0 {
		return nil
	}
	line, err := plotter.NewLine(plotter.XYs{{X: s.at(b.line), Y: -float64(len(b.rows))}, {X: s.at(b.line), Y: 0}})
	if err != nil {
		return err
	}
	line.Color, line.Width, line.Dashes = muted, 1, []vg.Length{3, 3}
	p.Add(line)
	p.X.Tick.Marker = append(ticks, plot.Tick{Value: s.at(b.line), Label: b.legend})
	return nil
}

// noText is the text of a tick that shows no text. A tick with an empty text would be a minor tick, which has no grid line.
const noText = " "

// The function thinned removes texts, so that at most n ticks have one.
func thinned(ticks plot.ConstantTicks, n int) plot.ConstantTicks {
	every := (len(ticks) + n - 1) / n
	for i := range ticks {
		if every > 1 && i%every != 0 {
			ticks[i].Label = noText
		}
	}
	return ticks
}
