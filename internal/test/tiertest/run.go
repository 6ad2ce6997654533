package tiertest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A promise is a test of the suite.
type promise struct {
	name  string // name of the test
	text  string // text in the table of promises
	alone bool   // no other test may use the store at the same time
	gate  bool   // a promise of the gate: it follows from the others, so one real store is enough
	// A first promise is tested before any process has a longer lease than Harness.Lease. A server that takes over may wait for the longest
	// lease that any process had.
	first bool
	test  func(*scene)
}

// A group is a set of promises that belong together.
type group struct {
	text     string
	promises []promise
}

var groups = []group{
	{"Processes are served first in, first out", orderPromises},
	{"A requeue (to release the lock and queue again) takes one write, and always releases the lock first", requeuePromises},
	{"A holder learns within a third of the lease that another process waits", contendedPromises},
	{"Readers share the lock; a writer or a mutex holds it alone", readerPromises},
	{"A reader learns that a writer or a mutex waits", readerContendedPromises},
	{"A writer can downgrade to a reader without leaving the queue", sharePromises},
	{"A process can ask the holder to release the lock", revokePromises},
	{"An operator can remove a holder by its token", breakPromises},
	{"A holder learns of its loss before its lease ends, and before another process gets the lock", lossPromises},
	{"Each grant of the lock has a higher token than the grant before it", tokenPromises},
	{"A holder can save a value beside the lock, and any process can load it", valuePromises},
	{"A server that may have lost locks grants no lock until the leases of the lost locks have ended", gracePeriodPromises},
	{"No entry is left in the queue after a cancelled call, a lost message or the end of a process", leftPromises},
	{"Release returns within a third of the lease, and a cancelled call returns at once", boundPromises},
	{"TryAcquire gets a free lock, and writes nothing if the lock is taken", tryPromises},
	{"No more permits are taken than exist, and requests are served whole and in order", permitPromises},
	{"Permits that were granted together are lost together, before another process gets them", permitLossPromises},
	{"No entry of a semaphore is left after a cancelled call, a lost message or the end of a process", permitLeftPromises},
	{"Acquiring many permits takes as many writes as acquiring one", permitCostPromises},
	{"The program is notified of each change of its connection", connectionPromises},
	{"Close ends all holds, calls and goroutines of the process", closePromises},
	{"Inside a process: which calls write nothing, which calls take one write, and how long other processes wait", enginePromises},
}

// Run tests every promise in a subtest of its own, and returns the table.
func Run(t *testing.T, with With) Table {
	t.Helper()
	table := judge(t, with, false, nil)
	t.Logf("promises:\n%s", table.markdown(t.Name()))
	return table
}

// Judge is like Run, for a tier that may break promises: a broken promise shows in the table, and does not fail the test. If names are
// given, Judge tests only the promises with these names.
func Judge(t *testing.T, with With, names ...string) Table { return judge(t, with, true, names) }

func judge(t *testing.T, with With, quiet bool, names []string) Table {
	var table Table
	var promises []promise
	for _, g := range groups {
		for _, p := range g.promises {
			if names != nil && !slices.Contains(names, p.name) {
				continue
			}
			promises = append(promises, p)
			table = append(table, Row{Test: p.name, Group: g.text, Promise: p.text})
		}
	}
	t.Run("promises", func(t *testing.T) { // this subtest ends when all its parallel subtests have ended
		for _, first := range []bool{true, false} {
			for i, p := range promises {
				if p.first == first {
					t.Run(p.name, func(t *testing.T) { p.judge(t, with, quiet, &table[i].Result) })
				}
			}
		}
	})
	return table
}

func (p promise) judge(t *testing.T, with With, quiet bool, result *string) {
	if !p.alone {
		t.Parallel()
	}
	v := &verdict{quiet: quiet}
	defer func() { *result = v.result() }() // stores the result, however the test ends
	with(t, func(t *testing.T, h Harness) {
		if v.elsewhere = p.gate && !h.Virtual && !h.Gate; v.elsewhere {
			return
		}
		if why, not := h.Unpromised[p.name]; not {
			v.quiet, v.unpromised = true, why
			defer func() {
				if !v.failed() {
					t.Errorf("kept, but said to be not promised: %s", why)
				}
			}()
		}
		for range 5 { // several runs may be needed to see that a promise is broken
			s := newScene(&witness{t, v}, h)
			p.test(s)
			s.noFalseLoss()
			if v.unpromised == "" || v.failed() {
				break
			}
		}
	})
	if v.lacking != "" || v.elsewhere {
		t.Skip(v.result())
	}
}

// A verdict is the result of a promise.
type verdict struct {
	quiet      bool
	unpromised string     // the reason why the tier does not make the promise; "" if it does
	elsewhere  bool       // the promise is tested on another store
	mu         sync.Mutex // guards the fields below
	failure    string     // the first failure
	lacking    string
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
	case v.unpromised != "" && v.failure != "":
		return Unpromised + ": " + v.unpromised
	case v.failure != "":
		return Broken + ": " + v.failure
	case v.elsewhere:
		return Elsewhere
	case v.lacking != "":
		return NotAvailable + ": " + v.lacking
	}
	return Kept
}

// A witness is a testing.TB that records all reports. It can hide failures from the test itself.
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

// The method needs ends the test unless able is true. The remaining arguments say what the harness cannot do.
func (w *witness) needs(able bool, what ...string) {
	if !able {
		w.lacks("the harness cannot " + strings.Join(what, " "))
	}
}

// The method lacks ends the test because there is nothing to test.
func (w *witness) lacks(what string) {
	w.verdict.lacking = what
	w.TB.SkipNow()
}
