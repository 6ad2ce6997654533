// Package explore runs the production code of the lock in a small configuration (a scope), once for every possible order of events. The
// events are calls that begin, commands that are executed, answers and notifications that arrive, and faults. Each execution starts from
// the beginning, in a bubble of testing/synctest.
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

// A Step is one event that can happen next.
type Step struct {
	// Name is the same in each execution that has taken the same earlier steps, even if independent steps among them were taken in another
	// order.
	Name string
	// Touches are the parts of the world that the step reads or changes. Two steps without a common part are independent: both orders lead
	// to the same state, and neither step makes the other one possible or impossible.
	Touches []string
	// Fault says that the step counts as a fault; Search.Faults limits their number. Orders that differ only in independent steps have the
	// same number of faults.
	Fault bool
	Take  func()
}

func (s Step) independent(of Step) bool {
	if slices.Contains(s.Touches, Everything) || slices.Contains(of.Touches, Everything) {
		return false
	}
	return !slices.ContainsFunc(s.Touches, func(part string) bool { return slices.Contains(of.Touches, part) })
}

// Everything is the part of the world that a step touches if it depends on all other steps. If such a step is not a fault, it is possible
// only while all other possible steps are faults.
const Everything = "everything"

// A World is the state of a scope in one execution.
type World interface {
	// Steps returns the steps that are possible now, the most usual first. Nothing else happens during the call. If no step is possible, the
	// execution is at its end. The function before reports for two earlier steps, by their numbers from 0, whether step i had to come before
	// step j.
	Steps(before func(i, j int) bool) []Step
	// State describes everything that has to be the same if two independent steps are taken in either order.
	State() string
	// End ends the world. It returns the outcome, and a violation if there was one.
	End() (outcome string, wrong error)
}

// A Search says which orders to execute.
type Search struct {
	Begin  func(*testing.T) World
	Faults int  // the most faults in one execution
	Delays int  // how often an execution may take another step than the first possible one; negative: any number
	Full   bool // also execute orders that differ only in independent steps; for tests of the reduction

	seen map[digest]int // for a bounded search: the points that were reached, each with the least number of delays
}

// A Result is the result of a search.
type Result struct {
	Executions int
	Outcomes   map[string]bool // outcomes, each with the state at the end
	Pruned     int             // executions that were cut short, because everything that could follow was executed elsewhere
	Bounded    bool            // the search is incomplete: orders with more than Search.Delays delays were not executed
	Violation  *Violation      // nil if there was none
}

// A Violation says which promise was broken, and by which steps.
type Violation struct {
	Wrong    error
	Schedule []string
}

// Test returns a test that reproduces the violation; begin is the source that creates its world.
func (v Violation) Test(begin string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v\n\nfunc TestFound(t *testing.T) {\n\tif wrong := Replay(t, %s,\n", v.Wrong, begin)
	for _, name := range v.Schedule {
		fmt.Fprintf(&b, "\t\t%q,\n", name)
	}
	b.WriteString("\t); wrong != nil {\n\t\tt.Error(wrong)\n\t}\n}")
	return b.String()
}

// A node is a point in the tree of orders, on the path of the present execution. It also holds the step that was taken there.
type node struct {
	steps  []Step
	wanted []string // steps to take here, in any order
	sleep  []Step   // steps that need not be taken here, because all orders that begin with them were already executed
	done   []Step   // steps that earlier executions took here
	chosen Step
	delays int
	birth  int    // the node at which the chosen step was possible first
	before []bool // for each earlier step of the path: the chosen step depends on it, directly or not

	births map[string]int // for a bounded search: the birth of each step
	mark   digest         // digest of the chosen step and the steps on which it depends
	point  digest         // digest of the point to which the chosen step leads
}

// A digest identifies a step together with all steps on which it depends. The digest of a point is the sum of the digests of the steps up
// to it. Orders that differ only in independent steps have the same sum.
type digest [2]uint64

func (d digest) plus(other digest) digest { return digest{d[0] + other[0], d[1] + other[1]} }

// Run executes every order until it finds a violation. Then it searches again with few delays. A violation close to the usual order needs
// fewer steps to describe.
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
			if tries++; tries == maxTries { // the execution cannot be repeated beyond this point of the path
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

// A stray reports that an execution differs from an earlier one, although the same steps were taken. That happens because the scheduler
// decides the order of events at one instant.
type stray struct {
	depth int
	wrong string
}

func (s stray) Error() string { return s.wrong }

// maxTries bounds how often a path is tried, and maxStrays bounds how many executions of a search may stray. If an execution can never be
// repeated, the world has a defect.
const maxTries, maxStrays = 20, 1000

// execute repeats the choices of the path, and then takes the first possible step up to the end.
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
		if !pruned && err == nil { // a pruned execution has not reached an end
			err = wrong
			r.Outcomes[outcome+"\n"+state] = true
		}
	})
	return err
}

// The method node returns the node after the last step of the path. At first, the search wants one usual step there, and every fault. A
// later step of the execution may show that another order is needed, and then adds further steps. Steps that make a fault impossible are
// wanted from the beginning.
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

// choose chooses the next wanted step at the node n that follows a path. It reports whether there is one.
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

// wasSeen reports whether a step leads to a point that was reached before with no more delays. If not, it records the point.
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

// markOf returns the digest of the step x that follows a path.
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

// Search.next replaces the step of a path's last node by the node's next wanted step. It reports whether there is one.
func (s Search) next(path []*node, r *Result) bool {
	last := len(path) - 1
	n := path[last]
	n.done = append(n.done, n.chosen)
	return s.choose(n, path[:last], r)
}

// relate finds the earlier steps on which the last step of a path depends. The last step might have come before one of them, with another
// result. In this case relate makes the search try that order: it adds a step with which the order can begin, at the node of the earlier
// step. This is the reduction with source sets: P. Abdulla, S. Aronis, B. Jonsson, K. Sagonas, Optimal dynamic partial order reduction,
// POPL 2014.
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

// past finds the steps of a path on which the step x depends. The step x follows the path, and became possible at the node birth. The
// result direct lists the steps before which x could also have come, with no dependent step in between.
func past(path []*node, x Step, birth int) (before []bool, direct []int) {
	before = make([]bool, len(path))
	if !x.Fault && slices.Contains(x.Touches, Everything) { // a step that touches everything comes after all earlier steps
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

// The method want adds the order in which the last step comes before step i, together with all steps that the last step needs.
func (s Search) want(path []*node, i, last int) {
	var others []int // the steps after step i that do not depend on it, and the last step
	for k := i + 1; k <= last; k++ {
		if k == last || !path[k].before[i] {
			others = append(others, k)
		}
	}
	var first []string // the order can begin with any of these steps
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

// allowed removes the faults from steps if the path already contains the allowed number of faults.
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

// Replay takes the named steps, and returns the violation that occurs up to the last of them. It also returns an error if one of the steps
// was impossible.
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
