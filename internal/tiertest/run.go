package tiertest

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// A promise is one of those that make up the suite.
type promise struct {
	name  string // of its test
	text  string // in the table
	alone bool   // no other test may use the store meanwhile
	test  func(*scene)
}

func promises() []promise {
	var all []promise
	for _, group := range [][]promise{
		orderPromises, requeuePromises, contestedPromises, lossPromises, tokenPromises,
		leftPromises, boundPromises, tryPromises, closePromises, enginePromises,
	} {
		all = append(all, group...)
	}
	return all
}

// Run tests every promise, each in a subtest, and returns the table.
func Run(t *testing.T, with With) Table {
	t.Helper()
	table := judge(t, with, false)
	t.Logf("promises:\n%s", table)
	return table
}

// Judge is Run for a tier that may break promises: only the table tells.
func Judge(t *testing.T, with With) Table { return judge(t, with, true) }

func judge(t *testing.T, with With, quiet bool) Table {
	all := promises()
	table := make(Table, len(all))
	t.Run("promises", func(t *testing.T) { // ends when all those have that run in parallel
		for i, p := range all {
			t.Run(p.name, func(t *testing.T) {
				if !p.alone {
					t.Parallel()
				}
				v := &verdict{quiet: quiet}
				defer func() { table[i] = Row{p.text, v.result()} }() // however the test ends
				with(t, func(t *testing.T, h Harness) {
					p.test(newScene(&witness{t, v}, h))
				})
				if v.lacking != "" {
					t.Skip(v.result())
				}
			})
		}
	})
	return table
}

// A verdict is what becomes known of a promise.
type verdict struct {
	quiet   bool
	mu      sync.Mutex // guards the fields below
	failure string     // the first one
	lacking string
}

func (v *verdict) fail(text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.failure == "" {
		v.failure = text
	}
}

func (v *verdict) failed() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.failure != ""
}

func (v *verdict) result() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.failure != "":
		return Broken + ": " + v.failure
	case v.lacking != "":
		return NotAvailable + ": " + v.lacking
	}
	return Kept
}

// A witness is a testing.TB that remembers what it was told, and keeps quiet about failures if told to.
type witness struct {
	testing.TB
	verdict *verdict
}

func (w *witness) Errorf(format string, args ...any) {
	w.TB.Helper()
	w.verdict.fail(fmt.Sprintf(format, args...))
	if !w.verdict.quiet {
		w.TB.Errorf(format, args...)
	}
}

func (w *witness) Fatalf(format string, args ...any) {
	w.TB.Helper()
	w.verdict.fail(fmt.Sprintf(format, args...))
	if !w.verdict.quiet {
		w.TB.Fatalf(format, args...)
	}
	w.TB.SkipNow() // ends the test
}

// needs ends the test unless the harness is able to do something.
func (w *witness) needs(able bool, what ...string) {
	if !able {
		w.verdict.lacking = "the harness cannot " + strings.Join(what, " ")
		w.TB.SkipNow()
	}
}
