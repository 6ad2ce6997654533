package judge

import (
	"strings"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/stress/internal/durations"
	"github.com/tierlock/tierlock/stress/internal/report"
)

// The function measured returns the result of a run with sections of 1 ms. One transfer in that run took very long.
func measured(procs int, away time.Duration) *report.Result {
	return &report.Result{
		Lock: "mutex", Procs: procs, Paths: 1, Busy: 0.5, Duration: int64(time.Second), Acquisitions: 500, Absences: 100,
		HandOver: durations.Quantiles{Max: int64(time.Hour)}, Away: &durations.Quantiles{P99: int64(away), Max: int64(time.Hour)},
	}
}

func transfers(longest time.Duration) durations.Quantiles {
	return durations.Quantiles{Max: int64(longest)}
}

func TestAbsencesAreBoundByTransfersBeforeTheRun(t *testing.T) {
	const ms = time.Millisecond
	strict, none := time.Duration(0), durations.Quantiles{}
	for _, test := range []struct {
		name      string
		procs     int
		transfers durations.Quantiles
		handOff   *time.Duration
		want      time.Duration
	}{
		{"strict", 4, transfers(3 * ms), &strict, 3 * 5 * ms},
		{"default", 3, transfers(3 * ms), nil, 2 * (20 + 5) * ms},
		{"default, far away", 3, transfers(55 * ms), nil, 2 * (55 + 2 + 55) * ms},
		{"strict, far away", 4, transfers(55 * ms), &strict, 3 * (2 + 55) * ms},
		{"not known how long transfers take", 4, none, nil, 0},
	} {
		r := measured(test.procs, 0)
		BoundAbsence(r, test.handOff, test.transfers, true)
		need.Equal(t, test.name, time.Duration(r.AwayBound), test.want)
	}
	r := measured(4, 0)
	r.Away = nil
	BoundAbsence(r, nil, transfers(ms), true)
	need.Equal(t, "the bound if no process wants the lock all the time", r.AwayBound, 0)
}

func TestAQuietRunFailsIfProcessesAreAwayForLonger(t *testing.T) {
	const ms = time.Millisecond
	for name, test := range map[string]struct {
		away         time.Duration
		quiet, short bool
		fails        bool
	}{
		"within the bound":  {69 * ms, true, false, false},
		"beyond the bound":  {70 * ms, true, false, true},
		"on a busy machine": {70 * ms, false, false, false},
		"a short run":       {70 * ms, true, true, false},
	} {
		r := measured(4, test.away)
		if test.short {
			r.Absences = 99
		}
		BoundAbsence(r, nil, transfers(ms), test.quiet)
		need.Equal(t, name+": the verdict", r.Verdict == "FAIL", test.fails)
		need.Equal(t, name+": it says so", strings.Contains(strings.Join(r.Violations(), ""), "more than the 69ms"), test.fails)
	}
}

func TestOnlyAMutexThatAllWantPromisesABound(t *testing.T) {
	for name, change := range map[string]func(*report.Result){
		"alone": func(r *report.Result) { r.Procs = 1 }, "a peer": func(r *report.Result) { r.Lock = "zk" },
		"several locks": func(r *report.Result) { r.Paths = 2 }, "pauses": func(r *report.Result) { r.Think = 1 },
	} {
		r := measured(4, 0)
		need.That(t, "none is promised", Promises(r))
		change(r)
		need.That(t, "one is promised: "+name, !Promises(r))
	}
}
