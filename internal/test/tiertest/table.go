package tiertest

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A Table contains the promises of a tier with their results, in the order of the suite.
type Table []Row

// A Row is one promise and its result.
type Row struct {
	Test    string // name of the test
	Group   string
	Promise string
	Result  string // "" if the promise was not tested
}

// The following are results of rows. A reason follows if a promise is not made or not available, and a description follows if it is broken.
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

// The method markdown returns the table under the name of its store. Promises that were not tested are left out.
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

// Update is the flag -update of the tests that record promises. With it, they write the files instead of comparing them.
var Update = flag.Bool("update", false, "write the tables of promises, and the API, as they are")

// Record compares the table with the table in file, which is under the name of the store. The file docs/promises.md is made from these
// files.
func (t Table) Record(tb testing.TB, store, file string) {
	tb.Helper()
	for _, row := range t {
		if row.Result == "" {
			return // the flag -run has left out some promises
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

// Summarize checks the table in document between the lines "<!-- promises -->" and "<!-- /promises -->". It has to be the tables of files,
// combined into one, with a row for each group.
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

// The function read parses a table.
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

// The function digest returns one result for a group. If some of its promises are kept, digest lists the other promises. If no promise is
// kept, digest lists the results.
func digest(rows []Row) string {
	kept := false
	var results, not []string
	for _, row := range rows {
		if row.Result == Kept {
			kept = true
			continue
		}
		not = append(not, fmt.Sprintf("%s (%s)", row.Promise, row.Result))
		if !slices.Contains(results, row.Result) {
			results = append(results, row.Result)
		}
	}
	switch {
	case not == nil:
		return Kept
	case !kept:
		return strings.Join(results, "; ")
	}
	return Kept + ", except: " + strings.Join(not, "; ")
}
