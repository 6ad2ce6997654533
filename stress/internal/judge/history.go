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
	opAcquire operationKind = "acquire" // of a new owner, or re-entry of a present one
	opRelease operationKind = "release"
	opExpire  operationKind = "lost" // the owner, if it is still one, loses the lock
)

// modelOf returns the model of a lock with this room, by the rules of the oracle.
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

// operations returns the steps of one hold. An acquisition that never returned has none. Such a process did nothing under the lock, and a
// correct history stays correct without this hold.
func operations(h evidence.Hold) []porcupine.Operation {
	step := func(kind operationKind, token int64, from, until clock.Instant) porcupine.Operation {
		turn := oracle.Turn{Process: h.Process, Owner: h.ID, Weight: h.Weight, Token: token}
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
	windowSize    = 150 // holds; the cost of checking grows faster than their number
	windowOverlap = 10
)

// checkHistory checks the holds of one path, in the order of Got, against the model, until the deadline. checkHistory checks overlapping
// windows. A correct history stays correct without some of its holds, so every window has to be legal, and the overlap compares each hold
// with its neighbors. If the result is Illegal, it also returns the illegal window.
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

// instant reduces an acquisition to the moment when it returned, and a release to the moment when it was called. A hold is certain to
// have lasted from its acquisition to its release, so a correct history stays legal. And there are no orders to search, which many
// waiting readers would make too numerous.
func instant(op porcupine.Operation) porcupine.Operation {
	if op.Input.(operation).kind == opAcquire {
		op.Call = op.Return
	} else {
		op.Return = op.Call
	}
	return op
}
