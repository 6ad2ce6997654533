package judge

import (
	"fmt"
	"io"
	"math"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/tierlock/tierlock/internal/test/oracle"
	"github.com/tierlock/tierlock/stress/internal/evidence"
)

// contradiction returns the shortest sequence of neighboring holds that is illegal by itself, which are usually two. The history of all
// given holds is illegal. It stays illegal if holds are added, and therefore bisection finds both ends. If a check takes too long, the
// result is longer than necessary.
func contradiction(holds []evidence.Hold, room oracle.Room, deadline time.Time) []evidence.Hold {
	illegal := func(part []evidence.Hold) bool { return checkWindow(part, room, deadline) == porcupine.Illegal }
	last := sort.Search(len(holds)-1, func(i int) bool { return illegal(holds[:i+1]) })
	holds = holds[:last+1]
	first := sort.Search(last, func(i int) bool { return !illegal(holds[i+1:]) })
	return holds[first:]
}

// Draw writes a page with the illegal part of the history and the faults at that time. Call Draw only for a case that was judged
// illegal.
func (c *Case) Draw(w io.Writer) error {
	var ops []porcupine.Operation
	from, until := int64(math.MaxInt64), int64(0)
	for row, h := range c.contradiction {
		for _, op := range operations(h) {
			op.ClientId = row
			ops = append(ops, op)
			from, until = min(from, op.Call), max(until, op.Call) // not op.Return: a process that died never returned
		}
	}
	model := modelOf(c.Rule.Room)
	_, info := porcupine.CheckOperationsVerbose(model, ops, checkingTime)
	var faults []porcupine.Annotation
	for _, d := range c.Faults.Disturbances {
		if int64(d.From) <= until && int64(d.Until) >= from {
			faults = append(faults, porcupine.Annotation{
				Tag: "faults", Start: int64(d.From), End: int64(d.Until), Description: d.Kind,
				Details: fmt.Sprint("for ", d.Until.Sub(d.From).Round(time.Millisecond)),
			})
		}
	}
	info.AddAnnotations(faults)
	return porcupine.Visualize(model, info, w)
}

func (op operation) String() string { return fmt.Sprintf("%s: %v", op.kind, op.turn) }
