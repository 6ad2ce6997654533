package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/stress/internal/durations"
	"github.com/tierlock/tierlock/stress/internal/load"
	"github.com/tierlock/tierlock/stress/internal/report"
	"github.com/tierlock/tierlock/stress/internal/store"
)

func TestMain(m *testing.M) {
	load.BeWorker()
	os.Exit(m.Run())
}

func TestBenchWritesWhatItMeasured(t *testing.T) {
	cfg := load.Config{Store: store.ZooKeeper, Ensemble: 1, Duration: 500 * time.Millisecond, Seed: 1}
	dir := filepath.Join(t.TempDir(), "new")
	work := []trial{
		{name: many, shape: load.Config{Procs: 2, Goroutines: 5, Baseline: "zk"}},
		{name: "less", shape: load.Config{Procs: 2, Goroutines: 5, Paths: 3}, beside: many},
	}
	b, err := measure(t.Context(), cfg, work, []goal{faster(many, 1, zkLock)}, io.Discard)
	if errors.Is(err, store.ErrNoServer) {
		childtest.Check(t, err)
	}
	need.OK(t, err)
	need.OK(t, b.write(dir))
	var read benchmark
	need.OK(t, json.Unmarshal(content(t, dir, "bench.json"), &read))
	need.Must(t, fmt.Sprintf("got %+v", read),
		len(read.Trials) == 2 && len(read.Trials[0].Runs) == rounds && len(read.Goals) == 1 && len(read.Goals[0].Runs) == rounds)
	r := read.Trials[0].Runs[read.Trials[0].Median]
	need.Equal(t, "the ratio of the run in the middle", r.Ratio, read.Goals[0].Median)
	need.That(t, fmt.Sprintf("the run in the middle: %+v", r), r.Baseline != nil && r.Away != nil && r.AwayBound != 0 && r.QuorumWrite != 0)
	for i, r := range read.Trials[1].Runs {
		if b := read.Trials[0].Runs[i].Baseline; r.Paths != 3 || r.Baseline == nil || r.Baseline.Seed != b.Seed ||
			r.Ratio != r.PerSecond/b.PerSecond {
			t.Errorf("beside the baseline of another trial: got %+v", r)
		}
	}
	e := read.Environment
	need.That(t, fmt.Sprintf("environment: %+v", e), e.Sync == "forced" && e.ZooKeeper != "" && e.CPUs != 0 && e.Go != "")
	for name, text := range map[string]string{"report.html": many, "bench.svg": ">tierlock<"} {
		need.Has(t, name, string(content(t, dir, name)), text)
	}
}

func TestInterruptedBenchWritesNothing(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	dir := filepath.Join(t.TempDir(), "new")
	announced := writerFunc(interrupt) // the first trial is
	err := Run(ctx, load.Config{Store: store.ZooKeeper, Ensemble: 1, Duration: time.Minute}, dir, io.Discard, announced)
	if errors.Is(err, store.ErrNoServer) {
		childtest.Check(t, err)
	}
	need.WantMention(t, err, "nothing was written")
	need.WantErr(t, "the directory", need.ErrOf(os.Stat(dir)), os.ErrNotExist)
}

// writerFunc is called at each write.
type writerFunc func()

func (f writerFunc) Write(p []byte) (int, error) {
	f()
	return len(p), nil
}

func TestGoalsCanBeJudgedByTheTrials(t *testing.T) {
	one := 1.0
	for name, work := range works {
		r := round{}
		for _, t := range work.trials {
			found := report.Result{QuorumWrite: 1, PerSecond: 1, Inside: 1, Away: &durations.Quantiles{}, AwayBound: 1, Packets: &one, Writes: &one,
				RTT: t.shape.RTT.Nanoseconds()}
			if found.RTT > 0 {
				found.Release = &durations.Quantiles{}
			}
			if t.shape.Baseline != "" || t.beside != "" {
				baseline := found
				found.Baseline, found.Ratio = &baseline, 1
			}
			r[t.name] = &found
		}
		for _, g := range work.goals {
			need.WantErr(t, name, need.ErrOf(g.judge([]round{r})), nil)
		}
	}
}

func TestTrialsShareTheBaselineOfTheSameWork(t *testing.T) {
	for name, work := range works {
		before := map[string]load.Config{}
		for _, tr := range work.trials {
			if tr.beside != "" {
				own, other := tr.shape, before[tr.beside]
				own.HandOff, own.Linger = nil, nil // which the store's own lock does not have
				own.Baseline = other.Baseline
				need.That(t, fmt.Sprintf("%s, %s: the baseline of %+v for %+v", name, tr.name, other, own), reflect.DeepEqual(own, other))
			}
			before[tr.name] = tr.shape
		}
	}
}

func TestGoalIsHeldAgainstTheMedian(t *testing.T) {
	rounds := []round{{"x": {Jain: 7}}, {"x": {Jain: 1}}, {"x": {Jain: 2}}}
	for _, test := range []struct {
		limit  float64
		atMost bool
		want   bool
	}{{2, false, true}, {2.1, false, false}, {2, true, true}, {1.9, true, false}} {
		g := goal{trial: "x", limit: test.limit, atMost: test.atMost, of: func(r round) float64 { return r["x"].Jain }}
		j := need.Get(g.judge(rounds))(t)
		need.That(t, fmt.Sprintf("limit %v, at most %t: %+v", test.limit, test.atMost, j), j.Median == 2 && j.Met == test.want)
	}
	unknown := goal{of: func(round) float64 { return math.NaN() }}
	need.That(t, "what could not be measured is judged", need.ErrOf(unknown.judge(rounds)) != nil)
}

func TestTheMiddleRunStandsForAll(t *testing.T) {
	m := measured{Runs: []*report.Result{{Ratio: 9}, {Ratio: 5}, {Ratio: 7}}}
	m.choose()
	need.Equal(t, "by ratio: the run", m.Median, 2)
	m = measured{Runs: []*report.Result{{PerSecond: 5}, {PerSecond: 4}, {PerSecond: 9}}}
	m.choose()
	need.Equal(t, "by rate: the run", m.Median, 0)
}

func TestParseGoBench(t *testing.T) {
	const out = "goos: linux\ncpu: AMD\nBenchmarkLinger-2  \t 887582\t 394.3 ns/op\t 64 B/op\t 1 allocs/op\n" +
		"BenchmarkLinger-2  \t 887582\t 400 ns/op\t 64 B/op\t 2 allocs/op\nBenchmarkReentry  \t 5\t 7 ns/op\nPASS\n"
	want := []goBench{{"Linger", []float64{394.3, 400}, []float64{1, 2}}, {"Reentry", []float64{7}, nil}}
	got := parseGoBench(out)
	need.That(t, fmt.Sprintf("got %+v, want %+v", got, want), reflect.DeepEqual(got, want))
}

func content(t *testing.T, dir, name string) []byte {
	t.Helper()
	return need.Get(os.ReadFile(filepath.Join(dir, name)))(t)
}
