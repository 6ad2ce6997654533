package judge

import (
	"fmt"
	"io"
	"math"
	"sort"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/tierlock/tierlock/stress/internal/evidence"
	"github.com/tierlock/tierlock/stress/internal/rule"
)

// contradiction is the shortest run of holds within some whose history is illegal that
// is illegal by itself, as a rule two neighbours. What more holds make of an illegal
// history is illegal, too, so both ends are found by halving. A check that takes too long
// leaves it longer.
func contradiction(holds []evidence.Hold, r rule.Rule, deadline time.Time) []evidence.Hold {
	illegal := func(part []evidence.Hold) bool { return checkWindow(part, r, deadline) == porcupine.Illegal }
	last := sort.Search(len(holds)-1, func(i int) bool { return illegal(holds[:i+1]) })
	holds = holds[:last+1]
	first := sort.Search(last, func(i int) bool { return !illegal(holds[i+1:]) })
	return holds[first:]
}

// Draw writes a page with what is illegal in the history, and with the faults of that
// time. It is for a case that was judged so.
func (c *Case) Draw(w io.Writer) error {
	var ops []porcupine.Operation
	from, until := int64(math.MaxInt64), int64(0)
	for row, h := range c.contradiction {
		for _, op := range operations(h) {
			op.ClientId = row
			ops = append(ops, op)
			from, until = min(from, op.Call), max(until, op.Call) // the return of the dead is never
		}
	}
	model := modelOf(c.Rule)
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

func (o owner) String() string { return fmt.Sprintf("process %d, hold %d", o.process, o.id) }

func (op operation) String() string {
	switch op.kind {
	case opAcquire:
		return fmt.Sprintf("%v: acquire%s, token %d", op.owner, weightText(op.weight), op.token)
	case opRelease:
		return fmt.Sprintf("%v: release", op.owner)
	default:
		return fmt.Sprintf("%v: lost", op.owner)
	}
}

// weightText says nothing of the ones that most sections weigh.
func weightText(weight int64) string {
	switch weight {
	case 1:
		return ""
	case rule.Everybody:
		return " alone"
	}
	return fmt.Sprintf(" %d times", weight)
}

func (s state) String() string {
	if len(s.inside) == 0 {
		return fmt.Sprintf("free, after token %d of process %d", s.seen.token, s.seen.process)
	}
	var texts []string
	for _, e := range s.inside {
		texts = append(texts, fmt.Sprintf("%v: has it%s, %d deep, with token %d", e.owner, weightText(e.weight), e.count, e.token))
	}
	return strings.Join(texts, "; ")
}
