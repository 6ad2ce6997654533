package agent

import (
	"cmp"
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/tierlock/tierlock/internal/test/explore"
	"github.com/tierlock/tierlock/internal/test/need"
)

var all = flag.Bool("all", false, "explore the scopes that take minutes as well")

const (
	lock   = "path=/a&listen=contended"
	writer = "path=/a&mode=write&listen=contended"
	reader = "path=/a&mode=read"
	most   = "path=/a&permits=2&of=3"
	both   = "path=/a&path=/b"
)

// faulty adds the faults of clients to a scope.
func faulty(s scope) scope {
	s.die, s.stop, s.unsettled, s.unread, s.clock = true, true, true, true, true
	return s
}

// storeless adds the faults of the first agent to a scope, in which clients hold for some time.
func storeless(s scope) scope {
	s.works, s.eager, s.deaf, s.cut, s.shutdown, s.leave, s.kill = 6, true, []int{4}, []int{9}, true, true, true
	return s
}

type scopeOfTest struct {
	name           string
	delays, faults int // 0 delays: the search is complete
	executions     int // 0: the number varies, because agents repeat requests at random intervals
	scope          scope
}

var scopes = []scopeOfTest{
	{"two clients, any two faults", 0, 2, 828, faulty(scope{clients: []string{lock, lock}})},
	{"three clients, any fault", 0, 1, 204, faulty(scope{clients: []string{lock, lock, lock}})},
	{"two clients, commands, any fault", 2, 1, 257, faulty(scope{clients: []string{lock, lock}, store: true})},
	{"two hosts, any fault", 0, 1, 708, faulty(scope{clients: []string{lock, lock}, far: []string{lock}})},
	{"two hosts, commands, any fault", 1, 1, 133, faulty(scope{clients: []string{lock, lock}, far: []string{lock}, store: true})},
	{"two hosts, a fault of the agent", 1, 1, 0, storeless(scope{clients: []string{lock, lock}, far: []string{lock}})},
	{"two hosts, the agent is shut down, and its client reads late", 1, 1, 175,
		scope{clients: []string{lock}, far: []string{lock}, works: 8, eager: true, shutdown: true, late: true}},
	{"two clients, slow answers, one stops or reads late", 2, 2, 1479,
		scope{clients: []string{lock, lock}, works: 1, eager: true, slow: true, stop: true, clock: true, late: true}},
	{"two clients that work, any fault", 0, 1, 199, faulty(scope{clients: []string{lock, lock}, works: 7})},
	{"two clients, twice, any fault", 0, 1, 350, faulty(scope{clients: []string{lock, lock}, turns: 2})},
	{"readers and a writer, any fault", 1, 1, 82, faulty(scope{clients: []string{reader, writer, reader}, far: []string{writer}})},
	{"permits, any fault", 1, 1, 50, faulty(scope{clients: []string{most, most}, far: []string{most}})},
	{"two locks, any fault", 1, 1, 51, faulty(scope{clients: []string{both, "path=/b"}, far: []string{both}})},
}

// These scopes take a minute or more, and run only with -all.
var longer = []scopeOfTest{
	{"three clients, any two faults", 0, 2, 5585, faulty(scope{clients: []string{lock, lock, lock}})},
	{"two clients, commands, any two faults", 3, 2, 6944, faulty(scope{clients: []string{lock, lock}, store: true})},
	{"two hosts, any two faults", 3, 2, 3457, faulty(scope{clients: []string{lock, lock}, far: []string{lock}})},
	{"two hosts, commands, any two faults", 2, 2, 4818, faulty(scope{clients: []string{lock, lock}, far: []string{lock}, store: true})},
	{"two clients, slow answers, any two faults", 3, 2, 18762,
		faulty(scope{clients: []string{lock, lock}, works: 1, eager: true, slow: true, late: true})},
	{"readers and a writer, any two faults", 3, 2, 18727, faulty(scope{clients: []string{reader, writer, reader}, far: []string{writer}})},
	{"permits, any two faults", 3, 2, 3459, faulty(scope{clients: []string{most, most}, far: []string{most}})},
	{"two locks, any two faults", 3, 2, 4385, faulty(scope{clients: []string{both, "path=/b"}, far: []string{both}})},
}

// The search tries the orders of the steps of each scope: all of them, or up to a number of steps out of order. If there are fewer
// executions than stated, the search has become incomplete.
func TestScopes(t *testing.T) {
	if *all {
		scopes = append(scopes, longer...)
	}
	for _, s := range scopes {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			r := explore.Search{Begin: s.scope.begin, Faults: s.faults, Delays: cmp.Or(s.delays, -1)}.Run(t)
			extent := "complete"
			if r.Bounded {
				extent = fmt.Sprintf("bounded: at most %d steps out of order", s.delays)
			}
			fmt.Printf("agent, %s: %d executions, %s\n", s.name, r.Executions, extent)
			if r.Violation != nil {
				t.Errorf("%v, after these steps:\n\t%s", r.Violation.Wrong, strings.Join(r.Violation.Schedule, "\n\t"))
			}
			need.That(t, fmt.Sprintf("%d executions, %d", r.Executions, s.executions), s.executions == 0 || r.Executions == s.executions)
		})
	}
}

// The reduced search leaves out orders. It must still find every outcome that the full search finds.
func TestReducedSearchFindsAllOutcomes(t *testing.T) {
	for name, s := range map[string]scope{
		"two clients":          {clients: []string{lock, lock}, die: true, stop: true, unsettled: true},
		"two hosts":            {clients: []string{lock}, far: []string{lock}, die: true, unsettled: true},
		"one client, commands": {clients: []string{lock}, die: true, unsettled: true, store: true},
	} {
		t.Run(name, func(t *testing.T) {
			full := explore.Search{Begin: s.begin, Faults: 1, Delays: -1, Full: true}.Run(t)
			reduced := explore.Search{Begin: s.begin, Faults: 1, Delays: -1}.Run(t)
			need.Must(t, "a violation", full.Violation == nil && reduced.Violation == nil)
			need.That(t, fmt.Sprintf("%d executions, of %d", reduced.Executions, full.Executions), reduced.Executions < full.Executions)
			for outcome := range full.Outcomes {
				need.That(t, "not found: "+outcome, reduced.Outcomes[outcome])
			}
		})
	}
}

// Each judge finds the defect that it is for.
func TestJudgesFind(t *testing.T) {
	for seed, judge := range map[string]string{
		"a client stops too late":                        "exclusion",
		"a client counts on its hold for too long":       "margin",
		"an unsettled release looks clean":               "tokens",
		"a client keeps its hold":                        "waits",
		"a dead client keeps its connection":             "left",
		"a client does not learn that another one waits": "contended",
		"a renewal names no hold":                        "fails",
	} {
		t.Run(seed, func(t *testing.T) {
			s := faulty(scope{clients: []string{lock, lock}, seed: seed})
			if judge == "fails" {
				s.works, s.stop = 4, false
			}
			r := explore.Search{Begin: s.begin, Faults: 1, Delays: 1}.Run(t)
			need.Must(t, "no violation", r.Violation != nil)
			need.That(t, fmt.Sprintf("%v, want %s", r.Violation.Wrong, judge), strings.HasPrefix(r.Violation.Wrong.Error(), judge+":"))
		})
	}
}
