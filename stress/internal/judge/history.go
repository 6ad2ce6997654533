package judge

import (
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/tierlock/tierlock/stress/internal/clock"
	"github.com/tierlock/tierlock/stress/internal/evidence"
	"github.com/tierlock/tierlock/stress/internal/rule"
)

// operation is a step of a history, of one lock path.
type operation struct {
	kind    operationKind
	owner   owner
	weight  int64
	token   int64
	process int
}

type owner struct{ process, id int }

type operationKind int

const (
	opAcquire operationKind = iota // of a new owner, or re-entry of a present one
	opRelease
	opExpire // the owner, if it is still one, loses the lock
)

// state is one of the model: who is inside, and the last tokens.
type state struct {
	inside []entry
	seen   mark // the highest of all
	alone  mark // of those that were alone
}

// entry is an owner.
type entry struct {
	owner
	weight, token int64
	count         int // how deep it is inside
}

// mark is a token and the process that had it.
type mark struct {
	token   int64
	process int
}

// precedes reports whether another token may come after the mark: a process may pass its
// token on from one of its owners to the next; from process to process tokens grow.
func (m mark) precedes(token int64, process int) bool {
	return token > m.token || token == m.token && process == m.process
}

// modelOf is a reentrant, fenced lock with the room of a rule. Those who are alone have
// higher tokens than all before; tokens of the others are in order only towards these. No
// token is no promise.
func modelOf(r rule.Rule) porcupine.Model {
	return porcupine.Model{
		Init:  func() any { return state{} },
		Step:  func(s, input, _ any) (bool, any) { return s.(state).step(input.(operation), r) },
		Equal: func(a, b any) bool { return a.(state).equal(b.(state)) },

		DescribeOperation: func(input, _ any) string { return input.(operation).String() },
		DescribeState:     func(s any) string { return s.(state).String() },
	}
}

// equal ignores in which order the owners came.
func (s state) equal(other state) bool {
	if s.seen != other.seen || s.alone != other.alone || len(s.inside) != len(other.inside) {
		return false
	}
	return !slices.ContainsFunc(s.inside, func(e entry) bool { return !slices.Contains(other.inside, e) })
}

func (s state) step(op operation, r rule.Rule) (legal bool, next state) {
	at := slices.IndexFunc(s.inside, func(e entry) bool { return e.owner == op.owner })
	switch mine := at >= 0; {
	case op.kind == opExpire:
		return true, s.with(at, 0)
	case op.kind == opRelease:
		return mine, s.with(at, -1)
	case mine:
		return op.token == s.inside[at].token, s.with(at, +1)
	}
	return s.admit(op, r)
}

// admit lets a new owner in.
func (s state) admit(op operation, r rule.Rule) (legal bool, next state) {
	weight := op.weight
	for _, e := range s.inside {
		weight += e.weight
	}
	last := s.alone
	if r.Alone(op.weight) {
		last = s.seen
	}
	if weight > r.Room || op.token != 0 && !last.precedes(op.token, op.process) {
		return false, s
	}
	next = s
	next.inside = append(slices.Clone(s.inside), entry{op.owner, op.weight, op.token, 1})
	if op.token > s.seen.token {
		next.seen = mark{op.token, op.process}
	}
	if r.Alone(op.weight) && op.token != 0 {
		next.alone = mark{op.token, op.process}
	}
	return true, next
}

// with changes how deep an owner is inside, by one or to nothing.
func (s state) with(at, change int) state {
	if at < 0 {
		return s
	}
	s.inside = slices.Clone(s.inside)
	s.inside[at].count += change
	if change == 0 || s.inside[at].count == 0 {
		s.inside = slices.Delete(s.inside, at, at+1)
	}
	return s
}

// operations are the steps of one hold. An acquisition that never returned has none:
// nothing was done under it, and a correct history stays correct without it.
func operations(h evidence.Hold) []porcupine.Operation {
	step := func(kind operationKind, token int64, from, until clock.Instant) porcupine.Operation {
		op := operation{kind, owner{h.Process, h.ID}, h.Weight, token, h.Process}
		return porcupine.Operation{Input: op, Call: int64(from), Return: int64(until)}
	}
	ops := []porcupine.Operation{step(opAcquire, h.Token, h.Asked, h.Got)}
	if h.Over == 0 {
		return append(ops, step(opExpire, 0, h.Valid, math.MaxInt64))
	}
	if h.Lost {
		return append(ops, step(opExpire, 0, h.Valid, h.Over))
	}
	for _, n := range h.Nested {
		ops = append(ops, step(opAcquire, n.Token, n.Asked, n.Got), step(opRelease, 0, n.Called, n.Return))
	}
	return append(ops, step(opRelease, 0, h.Valid, h.Over))
}

const (
	windowSize    = 150 // holds; the cost of checking grows faster than their number
	windowOverlap = 10
)

// checkHistory checks the holds of one path, in the order of Got, against the model,
// until the deadline. It does so in windows, since leaving out whole holds keeps a
// correct history correct; and as the windows overlap, each hold is compared with its
// neighbours. With Illegal comes what is.
func checkHistory(holds []evidence.Hold, r rule.Rule, deadline time.Time) (porcupine.CheckResult, []evidence.Hold) {
	verdict := porcupine.Ok
	for from := 0; from < len(holds); from += windowSize - windowOverlap {
		window := holds[from:min(from+windowSize, len(holds))]
		switch checkWindow(window, r, deadline) {
		case porcupine.Illegal:
			return porcupine.Illegal, contradiction(window, r, deadline)
		case porcupine.Unknown:
			verdict = porcupine.Unknown
		}
	}
	return verdict, nil
}

func checkWindow(holds []evidence.Hold, r rule.Rule, deadline time.Time) porcupine.CheckResult {
	left := time.Until(deadline)
	if left <= 0 {
		return porcupine.Unknown
	}
	var ops []porcupine.Operation
	for _, h := range holds {
		for _, op := range operations(h) {
			ops = append(ops, instant(op))
		}
	}
	return porcupine.CheckOperationsTimeout(modelOf(r), ops, left)
}

// instant takes an acquisition for done when it returned, and an end when it was called. What a
// hold is known to have lasted is within what it did, so a correct history is legal like that, too;
// and there are no orders to search, of which many readers that wait have too many.
func instant(op porcupine.Operation) porcupine.Operation {
	if op.Input.(operation).kind == opAcquire {
		op.Call = op.Return
	} else {
		op.Return = op.Call
	}
	return op
}
