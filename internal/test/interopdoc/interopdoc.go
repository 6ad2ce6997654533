// Package interopdoc reads the table in docs/interop.md for tests. The table says which lock waits for which other locks.
package interopdoc

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// A Table has a row for each lock. The row says for which locks that lock waits.
type Table struct {
	Head []string // the locks for which a lock may wait, one for each column
	Rows []Row
}

// A Row is the row of one lock.
type Row struct {
	Name  string
	Waits []bool // for each lock in the head: whether this lock waits for it
}

// Read returns the table of the document, whose path is file. Kazoo with an extra pattern has the same nodes as kazoo. Therefore the head
// does not contain it.
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

// Table.waits parses a cell. A cell contains "all locks", all locks except some, or a list of locks.
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
