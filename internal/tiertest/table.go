package tiertest

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

// A Table is what a tier promises, in the order of the suite.
type Table []Row

// A Row is one promise, and what is known of it.
type Row struct {
	Promise string
	Result  string
}

// Results of rows. Behind what is not available it says why, and behind what is broken, how.
const (
	Kept         = "kept"
	NotAvailable = "not available"
	Broken       = "BROKEN"
)

// Broken lists the promises that were.
func (t Table) Broken() (promises []string) {
	for _, row := range t {
		if strings.HasPrefix(row.Result, Broken) {
			promises = append(promises, row.Promise)
		}
	}
	return promises
}

// String is the table in Markdown, without what was not tested.
func (t Table) String() string {
	var b strings.Builder
	b.WriteString("| Promise | |\n|---|---|\n")
	for _, row := range t {
		if row.Result == "" {
			continue
		}
		fmt.Fprintf(&b, "| %s | %s |\n", row.Promise, row.Result)
	}
	return b.String()
}

// Update says whether files of promises are to be written instead of compared. The test binaries that import this
// package have it as the flag -update.
var Update = flag.Bool("update", false, "write the tables of promises")

// Record compares the table with the one in file, in which the README finds it.
func (t Table) Record(tb testing.TB, file string) {
	tb.Helper()
	if tb.Failed() {
		return
	}
	if *Update {
		if err := os.WriteFile(file, []byte(t.String()), 0o644); err != nil {
			tb.Error(err)
		}
		return
	}
	recorded, err := os.ReadFile(file)
	if err != nil || string(recorded) != t.String() {
		tb.Errorf("%s does not say what is promised (%v); go test -run with -update writes it:\n%s", file, err, t)
	}
}
