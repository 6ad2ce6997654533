package main

import (
	"fmt"
	"io"
)

// printTable prints the rows as a Markdown table. It shows the counted values next to those of the formulas.
func printTable(w io.Writer, p plan, rows []row) {
	locks := "the same"
	if p.Private {
		locks = "each its own"
	}
	fmt.Fprintf(w, "%d processes × %d locks (%s) × %d goroutines, T = %v\n\n", p.Procs, p.Locks, locks, p.Goroutines, p.Session)
	fmt.Fprintln(w, "| | requests | sent | writes | znodes | watches |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|")
	for _, r := range rows {
		name := fmt.Sprintf("%s, %.0f s", r.stage, r.took.Seconds())
		if r.turns > 0 {
			name = fmt.Sprintf("%.0f %s", r.turns, name)
		}
		c, e := r.counted, r.expected
		fmt.Fprintf(w, "| %s |", name)
		for _, pair := range [][2]float64{
			{c.Requests, e.Requests}, {c.Sent, e.Sent}, {c.Writes, e.Writes}, {c.Znodes, e.Znodes}, {c.Watches, e.Watches},
		} {
			fmt.Fprintf(w, " %.0f (%.0f) |", pair[0], pair[1])
		}
		fmt.Fprintln(w)
	}
}
