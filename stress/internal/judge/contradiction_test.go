package judge

import (
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/oracle"
	"github.com/tierlock/tierlock/stress/internal/clock"
	"github.com/tierlock/tierlock/stress/internal/evidence"
	"github.com/tierlock/tierlock/stress/internal/report"
	"github.com/tierlock/tierlock/stress/internal/rule"
)

// The function turns returns n legal holds that alternate between two processes.
func turns(n int) (holds []evidence.Hold) {
	for i := range n {
		holds = append(holds, span(1+i%2, int64(i+1), clock.Instant(10*i+1), clock.Instant(10*i+5)))
	}
	return holds
}

func TestContradictionIsTheHoldsThatDoNotGoTogether(t *testing.T) {
	type row struct {
		spoil func([]evidence.Hold)
		ids   []int
	}
	need.Each(t, map[string]row{
		"first two at once":        {func(h []evidence.Hold) { h[0].Valid, h[0].Over = 12, 13 }, []int{1, 11}},
		"two at once":              {func(h []evidence.Hold) { h[70].Valid, h[70].Over = 712, 713 }, []int{701, 711}},
		"token of another process": {func(h []evidence.Hold) { h[71].Token = h[70].Token }, []int{701, 711}},
		"last one":                 {func(h []evidence.Hold) { h[99].Token = 1 }, []int{981, 991}},
		"one by itself": {func(h []evidence.Hold) {
			h[50].Nested = []evidence.Nesting{{Token: 7, Asked: 502, Got: 503, Called: 504, Return: 505}}
		}, []int{501}},
		"two pairs": {func(h []evidence.Hold) { h[31].Token, h[71].Token = h[30].Token, h[70].Token }, []int{301, 311}},
	}, func(t *testing.T, test row) {
		holds := turns(100)
		test.spoil(holds)
		verdict, found := checkHistory(holds, oracle.Mutex, time.Now().Add(checkingTime))
		need.Equal(t, "the verdict", verdict, porcupine.Illegal)
		need.List(t, "the holds", ids(found), test.ids...)
	})
}

func ids(holds []evidence.Hold) (all []int) {
	for _, h := range holds {
		all = append(all, h.ID)
	}
	return all
}

func TestContradictionStaysWholeWithoutTimeToFindIt(t *testing.T) {
	holds := turns(3)
	holds[1].Token = holds[0].Token
	need.Len(t, "holds, which are all known to be illegal", contradiction(holds, oracle.Mutex, time.Now()), 3)
}

func TestDrawingNamesTheOperationsAndTheFaultsOfTheirTime(t *testing.T) {
	c := &Case{
		Rule: rule.Mutex(), SessionTimeout: time.Second, End: 1000, Holds: turns(100), Tallies: []*evidence.Tally{{}, {}},
		Faults: Faults{Disturbances: []Disturbance{{"stop worker", 600, 706}, {"kill worker", 100, 200}}},
	}
	c.Holds[71].Token = c.Holds[70].Token
	c.Judge(&report.Result{Procs: 2, Goroutines: 1, Paths: 1})
	var page strings.Builder
	need.OK(t, c.Draw(&page))
	need.Has(t, "the page", page.String(),
		"acquire: process 1, hold 701, token 71", "release: process 1, hold 701", "acquire: process 2, hold 711, token 71",
		"free, after token 71 of process 1", "stop worker", `"ClientId":1`) // each hold has its own row
	for _, other := range []string{"hold 691", "hold 721", "kill worker"} {
		need.That(t, "the page has an unrelated operation: "+other, !strings.Contains(page.String(), other))
	}
}
