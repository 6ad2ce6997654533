package judge

import (
	"math"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/tierlock/tierlock/stress/internal/clock"
	"github.com/tierlock/tierlock/stress/internal/evidence"
)

// operation is a step of a history, of one lock path.
type operation struct {
	kind    operationKind
	owner   owner
	token   int64
	process int
}

type owner struct{ process, id int }

type operationKind int

const (
	opAcquire operationKind = iota // of a new owner, or re-entry of the present one
	opRelease
	opExpire // the owner, if it is still the owner, loses the lock
)

// mutexState is a state of the model. count is zero while nobody owns the lock; token
// and process are those of the last owner.
type mutexState struct {
	owner   owner
	count   int
	token   int64
	process int
}

// mutexModel is a reentrant, fenced mutex. A process may pass its token on from one of
// its owners to the next; from process to process tokens grow.
var mutexModel = porcupine.Model{
	Init: func() any { return mutexState{} },
	Step: func(state, input, _ any) (bool, any) { return state.(mutexState).step(input.(operation)) },

	DescribeOperation: func(input, _ any) string { return input.(operation).String() },
	DescribeState:     func(state any) string { return state.(mutexState).String() },
}

func (s mutexState) step(op operation) (legal bool, next mutexState) {
	mine := s.count > 0 && s.owner == op.owner
	switch {
	case op.kind == opExpire:
		if mine {
			s.count = 0
		}
		return true, s
	case op.kind == opRelease:
		s.count--
		return mine, s
	case mine:
		s.count++
		return op.token == s.token, s
	case s.count > 0 || op.token < s.token || op.token == s.token && op.process != s.process:
		return false, s
	}
	return true, mutexState{op.owner, 1, op.token, op.process}
}

// operations are the steps of one hold. An acquisition that never returned has none:
// nothing was done under it, and a correct history stays correct without it.
func operations(h evidence.Hold) []porcupine.Operation {
	step := func(kind operationKind, token int64, from, until clock.Instant) porcupine.Operation {
		op := operation{kind, owner{h.Process, h.ID}, token, h.Process}
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
func checkHistory(holds []evidence.Hold, deadline time.Time) (porcupine.CheckResult, []evidence.Hold) {
	verdict := porcupine.Ok
	for from := 0; from < len(holds); from += windowSize - windowOverlap {
		window := holds[from:min(from+windowSize, len(holds))]
		switch checkWindow(window, deadline) {
		case porcupine.Illegal:
			return porcupine.Illegal, contradiction(window, deadline)
		case porcupine.Unknown:
			verdict = porcupine.Unknown
		}
	}
	return verdict, nil
}

func checkWindow(holds []evidence.Hold, deadline time.Time) porcupine.CheckResult {
	left := time.Until(deadline)
	if left <= 0 {
		return porcupine.Unknown
	}
	var ops []porcupine.Operation
	for _, h := range holds {
		ops = append(ops, operations(h)...)
	}
	return porcupine.CheckOperationsTimeout(mutexModel, ops, left)
}
