package explore

import (
	"flag"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

var all = flag.Bool("all", false, "explore the scopes that take minutes as well")

// scopes are explored completely, unless the search says otherwise. Fewer executions than these, which are counted, would be a search
// that has become blind.
var scopes = []struct {
	name       string
	scope      Scope
	search     Search
	executions int
	long       bool
}{
	{"one process, two goroutines", Scope{Processes: 1, Goroutines: 2}, Search{Delays: -1}, 1788, false},
	{"two processes", Scope{Processes: 2, Goroutines: 1}, Search{Delays: -1}, 3086, false},
	{"two processes, one gives up", Scope{Processes: 2, Goroutines: 1, Cancel: true}, Search{Delays: -1, Faults: 1}, 46836, true},
	{"two processes, a message is lost", Scope{Processes: 2, Goroutines: 1, Lost: true}, Search{Delays: -1, Faults: 1}, 63538, true},
	{"two processes, a session ends", Scope{Processes: 2, Goroutines: 1, Expire: true}, Search{Delays: -1, Faults: 1}, 102962, true},
	{"two processes, two goroutines each", Scope{Processes: 2, Goroutines: 2}, Search{Delays: 3}, 17949, true},
}

func TestScopes(t *testing.T) {
	complete := 0
	for _, s := range scopes {
		if s.long && !*all {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			begun := time.Now()
			s.search.Begin = s.scope.Begin
			r := s.search.Run(t)
			extent := "complete"
			if r.Bounded {
				extent = "bounded"
			} else {
				complete++
			}
			t.Logf("%s: %d executions, %s, %v", s.name, r.Executions, extent, time.Since(begun).Round(time.Millisecond))
			if r.Violation != "" {
				t.Error(r.Violation)
			}
			if r.Executions != s.executions {
				t.Errorf("%d executions, want %d", r.Executions, s.executions)
			}
		})
	}
	t.Logf("explore: %d scopes complete", complete)
}

// What the reduced search leaves out differs by nothing that counts.
func TestReducedSearchFindsAllOutcomes(t *testing.T) {
	scope := Scope{Processes: 2, Goroutines: 1, Cancel: true}
	full := Search{Begin: scope.Begin, Faults: 1, Delays: 2}.Run(t)
	reduced := Search{Begin: scope.Begin, Faults: 1, Delays: -1}
	if !*all {
		scope.Cancel = false
		full = Search{Begin: scope.Begin, Delays: 3}.Run(t)
		reduced = Search{Begin: scope.Begin, Delays: -1}
	}
	found := reduced.Run(t)
	for outcome := range full.Outcomes {
		if !found.Outcomes[outcome] {
			t.Errorf("the reduced search does not find %q", outcome)
		}
	}
	t.Logf("%d executions: %q; reduced %d: %q", full.Executions, slices.Sorted(maps.Keys(full.Outcomes)), found.Executions, slices.Sorted(maps.Keys(found.Outcomes)))
}

// A search finds what is wrong, and says how it came to be.
func TestViolationsAreFound(t *testing.T) {
	scope := Scope{Processes: 2, Goroutines: 1, Remove: true}
	r := Search{Begin: scope.Begin, Faults: 1, Delays: -1}.Run(t)
	for _, want := range []string{"lost", " is removed", "p1.g1 begins"} {
		if !strings.Contains(r.Violation, want) {
			t.Errorf("got %q, want it to mention %q", r.Violation, want)
		}
	}
}
