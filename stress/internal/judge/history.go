package judge

import (
	"math"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/tierlock/tierlock/internal/test/oracle"
	"github.com/tierlock/tierlock/stress/internal/clock"
	"github.com/tierlock/tierlock/stress/internal/evidence"
)

// operation is a step in the history of one lock path.
type operation struct {
	kind operationKind
	turn oracle.Turn
}

type operationKind string

const (
	opAcquire operationKind = "acquire" // a new owner gets the lock, or its present owner gets it again
	opRelease operationKind = "release"
	opExpire  operationKind = "lost" // the owner loses the lock, if it still has the lock
)

// modelOf returns the model of a lock with the given room. The package oracle has the rules.
func modelOf(room oracle.Room) porcupine.Model {
	return porcupine.Model{
		Init:  func() any { return oracle.Lock{Room: room} },
		Step:  func(l, input, _ any) (bool, any) { return step(l.(oracle.Lock), input.(operation)) },
		Equal: func(a, b any) bool { return a.(oracle.Lock).Equal(b.(oracle.Lock)) },

		DescribeOperation: func(input, _ any) string { return input.(operation).String() },
		DescribeState:     func(l any) string { return l.(oracle.Lock).String() },
	}
}

func step(l oracle.Lock, op operation) (legal bool, next oracle.Lock) {
	var err error
	switch op.kind {
	case opAcquire:
		next, err = l.Enter(op.turn)
	case opRelease:
		next, err = l.Leave(op.turn)
	case opExpire:
		next = l.Without(op.turn)
	}
	return err == nil, next
}

// mostProcesses is a number that the number of a process never reaches.
const mostProcesses = 1000

// operations returns the steps of one hold. An acquisition that never returned is no hold and has no steps: its process did nothing
// under the lock. A correct history stays correct without it.
func operations(h evidence.Hold) []porcupine.Operation {
	step := func(kind operationKind, token int64, from, until clock.Instant) porcupine.Operation {
		turn := oracle.Turn{Process: h.Process, Owner: h.ID, Weight: h.Weight, Token: token}
		if h.Agent != 0 { // an agent passes its token from client to client, as a process does from goroutine to goroutine
			turn.Process, turn.Owner = h.Agent, h.ID*mostProcesses+h.Process
		}
		return porcupine.Operation{Input: operation{kind, turn}, Call: int64(from), Return: int64(until)}
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
	windowSize    = 150 // number of holds; the cost of a check grows faster than their number
	windowOverlap = 10
)

// checkHistory checks the holds of one path against the model, until the deadline. The holds are in the order of Got. checkHistory
// splits them into overlapping windows and checks each. A correct history stays correct if some holds are left out, so every window has
// to be legal. Because of the overlap, each hold is checked together with its neighbors. If the result is Illegal, checkHistory also
// returns the illegal part.
func checkHistory(holds []evidence.Hold, room oracle.Room, deadline time.Time) (porcupine.CheckResult, []evidence.Hold) {
	verdict := porcupine.Ok
	for from := 0; from < len(holds); from += windowSize - windowOverlap {
		window := holds[from:min(from+windowSize, len(holds))]
		switch checkWindow(window, room, deadline) {
		case porcupine.Illegal:
			return porcupine.Illegal, contradiction(window, room, deadline)
		case porcupine.Unknown:
			verdict = porcupine.Unknown
		}
	}
	return verdict, nil
}

func checkWindow(holds []evidence.Hold, room oracle.Room, deadline time.Time) porcupine.CheckResult {
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
	return porcupine.CheckOperationsTimeout(modelOf(room), ops, left)
}

// instant reduces an acquisition to the moment at which it returned, and a release to the moment at which it was called. A hold certainly
// lasts from the first moment to the second, and therefore a correct history stays legal. Without the reduction, many waiting readers would
// have too many possible orders.
func instant(op porcupine.Operation) porcupine.Operation {
	if op.Input.(operation).kind == opAcquire {
		op.Call = op.Return
	} else {
		op.Return = op.Call
	}
	return op
}
