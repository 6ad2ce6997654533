// Package interopdoc reads for tests what docs/interop.md says of which lock waits for which.
package interopdoc

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// A Table says of each lock in its rows for which locks it waits.
type Table struct {
	Head []string // the locks to wait for
	Rows []Row
}

// A Row is the row of one lock.
type Row struct {
	Name  string
	Waits []bool // as in the head
}

// Read returns the table of the document; file is where it is. Kazoo with an extra pattern has the nodes of kazoo, so the head lacks it.
func Read(t testing.TB, file string) *Table {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	table, said := new(Table), []string(nil)
	for line := range strings.Lines(strings.ReplaceAll(string(text), "`", "")) {
		cells := strings.Split(line, "|")
		if len(cells) != 4 {
			continue
		}
		name := strings.TrimSpace(cells[1])
		locks, ok := strings.CutPrefix(strings.TrimSpace(cells[2]), "waits for ")
		if !ok {
			continue
		}
		table.Rows, said = append(table.Rows, Row{Name: name}), append(said, locks)
		if !strings.HasSuffix(name, " +") {
			table.Head = append(table.Head, name)
		}
	}
	for i, locks := range said {
		table.Rows[i].Waits = table.waits(t, locks)
	}
	return table
}

// waits is the meaning of a cell: "all locks", these except some, or some.
func (of *Table) waits(t testing.TB, locks string) (waits []bool) {
	t.Helper()
	others, all := strings.CutPrefix(locks, "all locks")
	names := strings.Split(locks, ", ")
	if all {
		names = strings.Split(strings.TrimPrefix(others, " except "), ", ")
	}
	for _, name := range names {
		if name != "" && !slices.Contains(of.Head, name) {
			t.Fatalf("the table has an unknown lock %q", name)
		}
	}
	for _, name := range of.Head {
		waits = append(waits, slices.Contains(names, name) != all)
	}
	return waits
}
