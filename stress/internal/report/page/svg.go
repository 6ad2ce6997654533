package page

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"image/color"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

var (
	accent = color.RGBA{0x0b, 0x72, 0x85, 0xff}
	grey   = color.RGBA{0xb4, 0xbb, 0xc2, 0xff}
	ink    = color.RGBA{0x21, 0x25, 0x29, 0xff}
	muted  = color.RGBA{0x5c, 0x63, 0x6a, 0xff}
	faint  = color.RGBA{0xe4, 0xe7, 0xea, 0xff}
)

// width is the width of all pictures, in the unit of their view box. It is not much wider than a phone, so that the text can be read on
// one.
const width = vg.Length(390)

var sans = font.Font{Typeface: "Liberation", Variant: "Sans"}

func textStyle(size vg.Length, c color.Color) draw.TextStyle {
	f := sans
	f.Size = size
	return draw.TextStyle{Color: c, Font: f, Handler: plot.DefaultTextHandler}
}

// newPlot returns an empty plot without a frame.
func newPlot() *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.LineStyle.Width = 0
		axis.Tick.Length = 0
		axis.Tick.Label.Font, axis.Tick.Label.Color = textStyle(10, muted).Font, muted
		axis.Label.TextStyle.Font, axis.Label.TextStyle.Color = textStyle(10, muted).Font, muted
		axis.Padding = 0
	}
	return p
}

func rightAligned(s draw.TextStyle) draw.TextStyle {
	s.XAlign = draw.XRight
	return s
}

func faintGrid() *plotter.Grid {
	g := plotter.NewGrid()
	g.Vertical.Color, g.Vertical.Width = faint, 1
	g.Horizontal.Color, g.Horizontal.Width = faint, 1
	return g
}

// ground gives each text a white outline. With it the text can be read on a dark page, and where it crosses lines.
const ground = `<style>text{paint-order:stroke;stroke:#fff;stroke-width:3px;stroke-linejoin:round}</style>` +
	`<rect width="100%" height="100%" fill="#fff"/>`

// drawSVG draws a plot. The title is read aloud by screen readers.
func drawSVG(p *plot.Plot, height, left vg.Length, title string) (string, error) {
	canvas := vgsvg.New(width, height)
	p.Draw(draw.Crop(draw.New(canvas), left, -6, 3, -4))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return "", err
	}
	// The output begins with an XML declaration and a fixed size, which are for a document of its own. They are cut off.
	_, content, found := strings.Cut(b.String(), "<svg")
	_, content, closed := strings.Cut(content, ">")
	if !found || !closed {
		return "", fmt.Errorf("draw %q: no svg", title)
	}
	content = strings.ReplaceAll(content, "font-family:Liberation Sans;font-variant:normal;",
		"font-family:'Liberation Sans',Arial,Helvetica,sans-serif;")
	var escaped strings.Builder
	if err := xml.EscapeText(&escaped, []byte(title)); err != nil {
		return "", err
	}
	const enlarged = 1.5 // factor for the size that a picture has if nothing else determines its size
	w, h := width.Points(), height.Points()
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" role="img" width="%g" height="%g" viewBox="0 0 %g %g"><title>%s</title>%s%s`,
		enlarged*w, enlarged*h, w, h, &escaped, ground, content), nil
}
