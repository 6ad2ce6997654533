// Package explore runs the real lock in every order of what can happen at a small scope: calls that begin, commands that are executed,
// answers and news that are delivered, and faults. Each execution is one of a bubble of testing/synctest, from the beginning.
package explore

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// A Step is one thing that can happen next.
type Step struct {
	// Name is the same in each execution that has taken the same steps before, whatever the order of those that are independent.
	Name string
	// Touches are the parts of the world that the step reads or changes. Two steps with none in common are independent: either order
	// leads to the same, and neither makes the other possible or impossible.
	Touches []string
	Fault   bool // one of those that are counted; orders that differ in independent ones only have as many
	Take    func()
}

func (s Step) independent(of Step) bool {
	if slices.Contains(s.Touches, Everything) || slices.Contains(of.Touches, Everything) {
		return false
	}
	return !slices.ContainsFunc(s.Touches, func(part string) bool { return slices.Contains(of.Touches, part) })
}

// Everything is what a step touches that depends on all others. One that is no fault is possible only when nothing else is, but faults.
const Everything = "everything"

// A World is a scope in one execution.
type World interface {
	// Steps are what can happen now, the most usual first. Nothing is in motion while it is called, and none at all is the end. Before
	// tells of two steps that were taken, by their numbers from 0, whether the one had to come before the other.
	Steps(before func(i, j int) bool) []Step
	// State is all that two orders of independent steps have to agree in.
	State() string
	// End ends the world. It returns what came of it, and what was wrong.
	End() (outcome string, wrong error)
}

// A Search says which orders are executed.
type Search struct {
	Begin  func(*testing.T) World
	Faults int  // at most in one execution
	Delays int  // how often another step than the first is taken, at most; negative: as often as there are others
	Full   bool // also orders that differ by independent steps only; for tests of the reduction

	seen map[digest]int // points, and with how many delays; of a search that is bounded
}

// A Result is what a search found.
type Result struct {
	Executions int
	Outcomes   map[string]bool // with the states at the end
	Pruned     int             // executions that were cut short, as all that could follow was executed elsewhere
	Bounded    bool            // there were more orders than the delays allowed
	Violation  *Violation      // nil if there was none
}

// A Violation is what was wrong, and the steps that led to it.
type Violation struct {
	Wrong    error
	Schedule []string
}

// Test says what happened, with a test of it in a world that is written as begin.
func (v Violation) Test(begin string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v\n\nfunc TestFound(t *testing.T) {\n\tif wrong := Replay(t, %s,\n", v.Wrong, begin)
	for _, name := range v.Schedule {
		fmt.Fprintf(&b, "\t\t%q,\n", name)
	}
	b.WriteString("\t); wrong != nil {\n\t\tt.Error(wrong)\n\t}\n}")
	return b.String()
}

// A node is a point in the tree of orders, on the path of the present execution, and the step that was taken there.
type node struct {
	steps  []Step
	wanted []string // steps to take here, in any order
	sleep  []Step   // of which every order was executed already
	done   []Step   // were taken here before
	chosen Step
	delays int
	birth  int    // the node at which the chosen step was possible first
	before []bool // which earlier steps of the path the chosen one depends on, directly or not

	births map[string]int // of all steps; of a search that is bounded
	mark   digest         // of the chosen step, with what it depends on
	point  digest         // to which it leads
}

// A digest is of a step with all that it depends on, or the sum of those to a point: orders of the same steps that differ in independent
// ones only lead to the same.
type digest [2]uint64

func (d digest) plus(other digest) digest { return digest{d[0] + other[0], d[1] + other[1]} }

// Run executes every order, up to a violation. Then it tries orders nearer to the usual one, as what is wrong there as well is told in
// fewer steps.
func (s Search) Run(t *testing.T) Result {
	r := s.run(t, math.MaxInt)
	for delays := 0; r.Violation != nil && delays < 4 && (s.reduced() || delays < s.Delays); delays++ {
		near := Search{Begin: s.Begin, Faults: s.Faults, Delays: delays}.run(t, 5000).Violation
		if near != nil {
			if len(near.Schedule) < len(r.Violation.Schedule) {
				r.Violation = near
			}
			break
		}
	}
	return r
}

func (s Search) run(t *testing.T, limit int) (r Result) {
	r.Outcomes = make(map[string]bool)
	s.seen = make(map[digest]int)
	var path []*node
	for tries, strays := 0, 0; ; {
		err := s.execute(t, &path, &r)
		if off := (stray{}); errors.As(err, &off) && strays < maxStrays {
			strays++
			if tries++; tries == maxTries { // it had strayed before, and has been explored there as far as it came
				path, tries = path[:off.depth], 0
			}
			continue
		}
		tries = 0
		r.Executions++
		if err != nil {
			r.Violation = &Violation{err, schedule(path)}
		}
		if err != nil || r.Executions == limit {
			return r
		}
		for len(path) > 0 && !s.next(path, &r) {
			path = path[:len(path)-1]
		}
		if len(path) == 0 {
			return r
		}
	}
}

// A stray is an execution that did not come again where the same steps had led before: what happens at one instant of the clock happens in
// the order of the scheduler.
type stray struct {
	depth int
	wrong string
}

func (s stray) Error() string { return s.wrong }

// A path is tried so often, and in one search so many executions may stray: what is never repeatable is a fault of the world.
const maxTries, maxStrays = 20, 1000

// execute repeats the choices of the path, and goes on with the first one possible to the end.
func (s Search) execute(t *testing.T, path *[]*node, r *Result) (err error) {
	synctest.Test(t, func(t *testing.T) {
		w := s.Begin(t)
		births := make(map[string]int)
		pruned := false
		for depth := 0; ; depth++ {
			synctest.Wait()
			steps := s.allowed(w.Steps(func(i, j int) bool { return i < j && (*path)[j].before[i] }), (*path)[:depth])
			maps.DeleteFunc(births, func(name string, _ int) bool { return !named(steps, name) })
			for _, x := range steps {
				if _, known := births[x.Name]; !known {
					births[x.Name] = depth
				}
			}
			if len(steps) == 0 {
				break
			}
			if depth == len(*path) {
				n := s.node(steps, *path)
				if s.bounded() {
					n.births = maps.Clone(births)
				}
				if pruned = !s.choose(n, *path, r); pruned {
					r.Pruned++
					break
				}
				*path = append(*path, n)
			}
			n := (*path)[depth]
			i := slices.IndexFunc(steps, func(x Step) bool { return x.Name == n.chosen.Name })
			if i < 0 {
				err = stray{depth, fmt.Sprintf("not repeatable: %q is not among %q", n.chosen.Name, names(steps))}
				break
			}
			n.steps, n.chosen = steps, steps[i]
			if n.before == nil {
				n.birth = births[n.chosen.Name]
				s.relate(*path, depth)
			}
			steps[i].Take()
		}
		state := w.State()
		outcome, wrong := w.End()
		if !pruned && err == nil { // else it has ended in the middle
			err = wrong
			r.Outcomes[outcome+"\n"+state] = true
		}
	})
	return err
}

// node is the point behind the path. Without a reason to do otherwise one step is taken there, and each fault: that another step
// would have to come first shows later in the execution, but for one that makes the fault impossible.
func (s Search) node(steps []Step, path []*node) *node {
	n := &node{steps: steps}
	if len(path) > 0 {
		last := path[len(path)-1]
		n.delays = last.delays
		if last.chosen.Name != last.steps[0].Name {
			n.delays++
		}
		if s.reduced() {
			for _, x := range slices.Concat(last.sleep, last.done) {
				if x.independent(last.chosen) {
					n.sleep = append(n.sleep, x)
				}
			}
		}
	}
	first := true
	for _, x := range steps {
		if !s.reduced() || x.Fault || first && !named(n.sleep, x.Name) {
			n.wanted = append(n.wanted, x.Name)
			first = first && x.Fault
		}
	}
	return n
}

func (s Search) reduced() bool { return !s.Full && s.Delays < 0 }
func (s Search) bounded() bool { return !s.Full && s.Delays >= 0 }

// choose takes the next of the steps that are wanted at a node behind a path, and reports whether there is one.
func (s Search) choose(n *node, path []*node, r *Result) bool {
	for _, x := range n.steps {
		if !slices.Contains(n.wanted, x.Name) || named(n.done, x.Name) || named(n.sleep, x.Name) {
			continue
		}
		if s.Delays >= 0 && x.Name != n.steps[0].Name && n.delays+1 > s.Delays {
			r.Bounded = true
			return false
		}
		if s.bounded() && s.wasSeen(n, path, x) {
			continue
		}
		n.chosen, n.before = x, nil
		return true
	}
	return false
}

// wasSeen reports whether a step leads to a point that was reached before with no more delays. If not, it is now.
func (s Search) wasSeen(n *node, path []*node, x Step) bool {
	delays := n.delays
	if x.Name != n.steps[0].Name {
		delays++
	}
	n.mark, n.point = markOf(path, x, n.births[x.Name]), digest{}
	if len(path) > 0 {
		n.point = path[len(path)-1].point
	}
	n.point = n.point.plus(n.mark)
	least, seen := s.seen[n.point]
	if seen && least <= delays {
		return true
	}
	s.seen[n.point] = delays
	return false
}

// markOf is the digest of a step that follows a path.
func markOf(path []*node, x Step, birth int) digest {
	before, _ := past(path, x, birth)
	var all digest
	for i, n := range path {
		if before[i] {
			all = all.plus(n.mark)
		}
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%x %s", all, x.Name))
	return digest{binary.BigEndian.Uint64(sum[:8]), binary.BigEndian.Uint64(sum[8:])}
}

// next turns the last node of a path to its next step, and reports whether there is one.
func (s Search) next(path []*node, r *Result) bool {
	last := len(path) - 1
	n := path[last]
	n.done = append(n.done, n.chosen)
	return s.choose(n, path[:last], r)
}

// relate finds what the last step of a path depends on. Where it could as well have come before an earlier one, and that would not
// be the same, the order is wanted: one step with which it can begin, at the node of the earlier one. This is the reduction of
// source sets: P. Abdulla, S. Aronis, B. Jonsson, K. Sagonas, Optimal dynamic partial order reduction, POPL 2014.
func (s Search) relate(path []*node, last int) {
	n := path[last]
	before, direct := past(path[:last], n.chosen, n.birth)
	n.before = before
	if !s.reduced() {
		return
	}
	for _, i := range direct {
		s.want(path, i, last)
	}
}

// past is what a step depends on that follows a path, and was possible first at the node birth. What it could as well have come before,
// and nothing in between leads from one to the other, is direct.
func past(path []*node, x Step, birth int) (before []bool, direct []int) {
	before = make([]bool, len(path))
	if !x.Fault && slices.Contains(x.Touches, Everything) { // it was not possible before any of them
		for i := range before {
			before[i] = true
		}
		return before, nil
	}
	for i := len(path) - 1; i >= 0; i-- {
		if before[i] || i != birth-1 && path[i].chosen.independent(x) {
			continue
		}
		if i != birth-1 {
			direct = append(direct, i)
		}
		before[i] = true
		for j, b := range path[i].before {
			before[j] = before[j] || b
		}
	}
	return before, direct
}

// want has the last step, with what it needs, come before the i-th.
func (s Search) want(path []*node, i, last int) {
	var others []int // from the i-th on, those that do not depend on it, and the last one
	for k := i + 1; k <= last; k++ {
		if k == last || !path[k].before[i] {
			others = append(others, k)
		}
	}
	var first []string // with any of them that order can begin
	for _, k := range others {
		if !slices.ContainsFunc(others, func(j int) bool { return j < k && path[k].before[j] }) {
			first = append(first, path[k].chosen.Name)
		}
	}
	at := path[i]
	for _, name := range first {
		if slices.Contains(at.wanted, name) {
			return
		}
	}
	for _, name := range first {
		if named(at.steps, name) {
			at.wanted = append(at.wanted, name)
			return
		}
	}
	panic(fmt.Sprintf("none of %q is possible at step %d of %q", first, i+1, schedule(path)))
}

// allowed leaves out faults beyond their number.
func (s Search) allowed(steps []Step, path []*node) []Step {
	faults := 0
	for _, n := range path {
		if n.chosen.Fault {
			faults++
		}
	}
	if faults < s.Faults {
		return steps
	}
	return slices.DeleteFunc(steps, func(x Step) bool { return x.Fault })
}

func named(steps []Step, name string) bool {
	return slices.ContainsFunc(steps, func(x Step) bool { return x.Name == name })
}

func names(steps []Step) (list []string) {
	for _, x := range steps {
		list = append(list, x.Name)
	}
	return list
}

func schedule(path []*node) (names []string) {
	for _, n := range path {
		names = append(names, n.chosen.Name)
	}
	return names
}

// Replay takes steps by name, and returns what was wrong up to there. An error says as well if one of them was not possible.
func Replay(t *testing.T, begin func(*testing.T) World, schedule ...string) error {
	s := Search{Begin: begin, Faults: math.MaxInt, Full: true, Delays: -1}
	var path []*node
	for _, name := range schedule {
		path = append(path, &node{chosen: Step{Name: name}})
	}
	for tries := 0; ; tries++ {
		err := s.execute(t, &path, &Result{Outcomes: make(map[string]bool)})
		if !errors.As(err, new(stray)) || tries == maxTries {
			return err
		}
	}
}
