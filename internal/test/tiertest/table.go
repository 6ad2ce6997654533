package tiertest

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A Table is the promises of a tier with their results, in the order of the suite.
type Table []Row

// A Row is one promise and its result.
type Row struct {
	Test    string // its name
	Group   string
	Promise string
	Result  string // "" if it was not tested
}

// Results of rows. If a promise is not made or not available, the reason follows; if it is broken, a description follows.
const (
	Kept         = "kept"
	Elsewhere    = "follows from the rows above; tested on ZooKeeper"
	Unpromised   = "not promised"
	NotAvailable = "not available"
	Broken       = "BROKEN"
)

// Broken lists the tests of the broken promises.
func (t Table) Broken() (tests []string) {
	for _, row := range t {
		if strings.HasPrefix(row.Result, Broken) {
			tests = append(tests, row.Test)
		}
	}
	return tests
}

// markdown returns the table under the name of its store, without promises that were not tested.
func (t Table) markdown(store string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| | %s |\n|---|---|\n", store)
	group := ""
	for _, row := range t {
		if row.Result == "" {
			continue
		}
		if row.Group != group {
			group = row.Group
			fmt.Fprintf(&b, "| **%s** | |\n", group)
		}
		fmt.Fprintf(&b, "| %s | %s |\n", row.Promise, row.Result)
	}
	return b.String()
}

// Update is the flag -update of the tests that record promises: write the files instead of comparing them.
var Update = flag.Bool("update", false, "write the tables of promises, and the API, as they are")

// Record compares the table with the one in file, under the name of the store; docs/promises.md is made from these files.
func (t Table) Record(tb testing.TB, store, file string) {
	tb.Helper()
	for _, row := range t {
		if row.Result == "" {
			return // -run left some out
		}
	}
	if !tb.Failed() {
		compare(tb, file, t.markdown(store))
	}
}

func compare(tb testing.TB, file, want string) {
	tb.Helper()
	if *Update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			tb.Error(err)
		}
		return
	}
	got, err := os.ReadFile(file)
	if err != nil || string(got) != want {
		tb.Errorf("%s does not say what is promised (%v); the flag -update of the test writes it", file, err)
	}
}

// Summarize checks that document has the tables of files combined into one, a row for each group, between the lines "<!-- promises -->"
// and "<!-- /promises -->".
func Summarize(tb testing.TB, document string, files ...string) {
	tb.Helper()
	const begin, end = "<!-- promises -->\n", "<!-- /promises -->\n"
	text, err := os.ReadFile(document)
	if err != nil {
		tb.Fatal(err)
	}
	before, rest, ok1 := strings.Cut(string(text), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		tb.Fatalf("%s has no place for the promises", document)
	}
	compare(tb, document, before+begin+summary(tb, filepath.Dir(document), files)+end+after)
}

func summary(tb testing.TB, dir string, files []string) string {
	tb.Helper()
	lines := make([]string, 2+len(groups))
	lines[0], lines[1] = "| |", "|---|"
	for i, g := range groups {
		lines[2+i] = fmt.Sprintf("| %s |", g.text)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			tb.Fatal(err)
		}
		store, results := read(string(text))
		link, err := filepath.Rel(dir, file)
		if err != nil {
			tb.Fatal(err)
		}
		lines[0] += fmt.Sprintf(" [%s](%s) |", store, filepath.ToSlash(link))
		lines[1] += "---|"
		for i, g := range groups {
			lines[2+i] += fmt.Sprintf(" %s |", digest(results[g.text]))
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

// read parses a table.
func read(table string) (store string, groups map[string][]Row) {
	groups = make(map[string][]Row)
	group := ""
	for i, line := range strings.Split(strings.TrimSpace(table), "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		promise, result := cells[0], cells[len(cells)-1]
		switch name, bold := strings.CutPrefix(promise, "**"); {
		case i == 0:
			store = result
		case i == 1:
		case bold:
			group = strings.TrimSuffix(name, "**")
		default:
			groups[group] = append(groups[group], Row{Promise: promise, Result: result})
		}
	}
	return store, groups
}

// digest returns the result of a group: that of all its promises, or of those that are not kept.
func digest(rows []Row) string {
	all := rows[0].Result
	var not []string
	for _, row := range rows {
		if row.Result != rows[0].Result {
			all = ""
		}
		if row.Result != Kept {
			not = append(not, row.Promise+": "+row.Result)
		}
	}
	return cmp.Or(all, strings.Join(not, "; "))
}
