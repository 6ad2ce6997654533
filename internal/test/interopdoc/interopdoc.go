// Package interopdoc reads the tables in docs/interop.md, for tests: which locks wait for which.
package interopdoc

import (
	"os"
	"strings"
	"testing"
)

// A Table says for each lock in its rows for which of the locks in its head it waits.
type Table struct {
	Head []string
	Rows []Row
}

// A Row is the row of one lock.
type Row struct {
	Name  string
	Waits []bool // as in the head
}

// Tables returns the tables of the document, which have the same rows; file is its path.
func Tables(t testing.TB, file string) (all []*Table) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(strings.NewReplacer("`", "", "*", "").Replace(string(text))) {
		line, ok := strings.CutPrefix(strings.TrimSpace(line), "|")
		if !ok || strings.HasPrefix(line, "-") {
			continue
		}
		cells := strings.Split(strings.TrimSuffix(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case cells[0] == "waits for":
			all = append(all, &Table{Head: cells[1:]})
		case len(all) > 0: // else another table
			last := all[len(all)-1]
			last.Rows = append(last.Rows, rowOf(t, last, cells))
		}
	}
	return all
}

func rowOf(t testing.TB, of *Table, cells []string) Row {
	t.Helper()
	r := Row{Name: cells[0]}
	for _, cell := range cells[1:] {
		if cell != "yes" && cell != "no" {
			t.Fatalf("the table has %q in the line of %s", cell, r.Name)
		}
		r.Waits = append(r.Waits, cell == "yes")
	}
	if len(r.Waits) != len(of.Head) {
		t.Fatalf("the table has %d cells in the line of %s, and %d in its head", len(r.Waits), r.Name, len(of.Head))
	}
	return r
}
