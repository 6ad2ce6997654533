package judge

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/stress/internal/clock"
	"github.com/tierlock/tierlock/stress/internal/evidence"
	"github.com/tierlock/tierlock/stress/internal/report"
	"github.com/tierlock/tierlock/stress/internal/rule"
)

func TestVerdictOfChaosFailsOn(t *testing.T) {
	const second = clock.Instant(time.Second)
	type row struct {
		spoil func(*Case)
		want  string
	}
	need.Each(t, map[string]row{
		"nothing": {func(*Case) {}, ""},
		"overlap": {func(e *Case) { e.Holds[0].Valid = e.Holds[1].Got + 1 }, "overlap"},
		"kernel lock taken": {func(e *Case) {
			e.Holds[1].Met = &evidence.Overlap{From: e.Holds[1].Got + 1, Until: e.Holds[1].Got + 2}
		}, "overlap"},
		"kernel lock taken after the death of its last holder": {func(e *Case) { meetDead(e, second+20) }, "overlap"},
		"nothing, as that holder may have died later":          {func(e *Case) { meetDead(e, 3*second+5) }, ""},
		"lost update":  {func(e *Case) { e.Fence.LostFenced = 1 }, "lost updates"},
		"torn read":    {func(e *Case) { e.Fence.Torn = 1 }, "reads that a write changed"},
		"equal tokens": {func(e *Case) { e.Fence.Regressions = 1 }, "tokens"},
		"blind holder": {func(e *Case) { e.Holds[0].Blind = true }, "saw no loss"},
		"lost hold that was released as if it were valid": {func(e *Case) { e.Holds[0].Lost, e.Holds[0].Blind = true, true }, "saw no loss"},
		"write in another's turn":                         {func(e *Case) { e.Holds[0].Guarded.Late = 1 }, "in another's turn"},
		"illegal history":                                 {func(e *Case) { e.Holds[1].Token = e.Holds[0].Token }, "illegal history"},
		"no progress":                                     {func(e *Case) { e.Holds = e.Holds[:1] }, "after the last fault"},
		"stall":                                           {func(e *Case) { e.End = 60 * second }, "longer than the faults explain"},
		"fault not healed":                                {func(e *Case) { e.Faults.Unhealed = []error{io.EOF} }, "could not be undone"},
		"event that cannot be":                            {func(e *Case) { e.Impossible = io.EOF }, "event that cannot be"},
		"nothing, as that is undecided":                   {func(e *Case) { e.Impossible, e.Undecided = io.EOF, true }, ""},
		"leak":                                            {func(e *Case) { e.Leaked = 1 }, "left behind"},
		"death of the last worker":                        {func(e *Case) { e.Tallies[0] = nil }, "died"},
		"death of an earlier worker":                      {func(e *Case) { e.Deaths = 1 }, "died"},
		"stuck goroutine":                                 {func(e *Case) { e.Tallies[0].Stuck = 1 }, "stuck"},
	}, func(t *testing.T, test row) {
		e := &Case{
			Rule: rule.Mutex(), SessionTimeout: time.Second, Healed: 2 * second, End: 4 * second,
			Holds:   []evidence.Hold{span(1, 5, second, second+10), span(2, 6, 3*second, 3*second+10)},
			Tallies: []*evidence.Tally{{}, {}},
		}
		test.spoil(e)
		r := &report.Result{Procs: 2, Goroutines: 1, Paths: 1}
		e.Judge(r)
		found := strings.Join(r.Violations(), "; ")
		need.Equal(t, "whether it passes, because of "+found, r.Verdict == "PASS", test.want == "")
		need.Has(t, "the findings", found, test.want)
		need.WantErr(t, "Write", r.Write(io.Discard, false), nil)
	})
}

// The function meetDead lets the second holder find the kernel's lock taken. The first holder was killed in its section, and was dead at
// died.
func meetDead(e *Case, died clock.Instant) {
	e.Holds[0] = killed(1, 5, e.Holds[0].Got, e.Holds[0].Valid)
	e.Faults.Deaths = map[int]clock.Instant{1: died}
	e.Holds[1] = met(e.Holds[1], e.Holds[1].Got+1, e.Holds[1].Got+2)
}

func TestReadersDoNotHideThatNobodyWrites(t *testing.T) {
	const second = clock.Instant(time.Second)
	e := &Case{Rule: rule.ReadersWriter(0.9), SessionTimeout: time.Second, Healed: 40 * second, End: 42 * second,
		Tallies: []*evidence.Tally{{}}}
	for i := range clock.Instant(42) {
		e.Holds = append(e.Holds, span(1, int64(i+1), i*second+1, i*second+10))
	}
	r := &report.Result{Procs: 1, Goroutines: 1, Paths: 1}
	e.Judge(r)
	need.Equal(t, "the verdict", r.Verdict, "FAIL")
	need.Equal(t, "stalls, and acquisitions after the faults", [2]int64{int64(r.Chaos.Stalls), int64(r.Chaos.AfterFaults)}, [2]int64{1, 0})
	need.Equal(t, "whether all were acquired again", e.Resumed(1), false)
}
