package bench

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/stress/internal/durations"
	"github.com/tierlock/tierlock/stress/internal/load"
	"github.com/tierlock/tierlock/stress/internal/report"
	"github.com/tierlock/tierlock/stress/internal/store"
)

var update = flag.Bool("update", false, "write the tables of docs/measured.md and the picture from the figures beside them")

func TestMain(m *testing.M) {
	load.BeWorker()
	os.Exit(m.Run())
}

func TestBenchWritesWhatItMeasured(t *testing.T) {
	p := plans["zookeeper"]
	little := work{load.Config{Procs: 2, Goroutines: 2, Section: time.Millisecond}, zooKeeperLocks}
	p.goals = []goal{faster(little.name(), asItComes, 1, perGoroutine(zkLock)), atMost(little.name(), asItComes, awayOfBound, 1)}
	const rounds = 2
	cfg := load.Config{Store: store.ZooKeeper, Ensemble: 1, Duration: time.Second, Seed: 1}
	dir := filepath.Join(t.TempDir(), "new")
	measured, err := p.measure(t.Context(), cfg, []work{little}, rounds, io.Discard)
	if errors.Is(err, store.ErrNoServer) {
		childtest.Check(t, err)
	}
	need.OK(t, err)
	need.OK(t, measured.write(dir, p))
	b := need.Get(read(dir, p))(t)
	need.Must(t, fmt.Sprintf("got %+v", b), len(b.Works) == 1 && len(b.Works[0].Locks) == 4 && b.Rounds == rounds)
	for _, s := range b.Works[0].Locks {
		for _, name := range []string{perSecond, inUse, waitP99, packets, writes, jainProcesses, jainGoroutines} {
			need.Equal(t, s.Lock+": runs with "+name, len(s.Figures[name]), rounds)
		}
	}
	text := content(t, dir, document)
	need.Has(t, "the document", text, "| "+little.name()+" | tierlock |", behindLocal(zkLock), "zookeeper/zk", "packets",
		"sync of the log forced", "≤ 1")
	need.Has(t, "the picture", content(t, dir, "bench.svg"), "<svg")
	var printed strings.Builder
	need.OK(t, b.print(&printed, p.goals))
	need.Has(t, "the output", printed.String(), little.name())
}

func TestInterruptedBenchWritesNothing(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	dir := filepath.Join(t.TempDir(), "new")
	announced := writerFunc(interrupt) // interrupts Run when it announces the first round
	err := Run(ctx, load.Config{Store: store.ZooKeeper, Ensemble: 1, Duration: time.Minute}, dir, io.Discard, announced)
	if errors.Is(err, store.ErrNoServer) {
		childtest.Check(t, err)
	}
	need.WantMention(t, err, "nothing was written")
	need.WantErr(t, "the directory", need.ErrOf(os.Stat(dir)), os.ErrNotExist)
}

// A writerFunc is a writer. Each Write calls the function and writes nothing.
type writerFunc func()

func (f writerFunc) Write(p []byte) (int, error) {
	f()
	return len(p), nil
}

// All stores are measured with the same workloads and the same four kinds of locks: tierlock, tierlock in strict order, the usual lock, and
// the usual lock behind a local mutex.
func TestEachStoreIsMeasuredAlike(t *testing.T) {
	var names []string
	for _, w := range usual(zooKeeperLocks) {
		names = append(names, w.name())
	}
	for name, p := range plans {
		works := p.works()
		for i, want := range names {
			need.Equal(t, name, works[i].name(), want)
		}
		for _, own := range []string{asItComes, inOrder} {
			need.That(t, name+" without "+own, slices.ContainsFunc(p.locks, func(c contestant) bool { return c.name == own }))
		}
		last := p.locks[len(p.locks)-2:]
		need.Equal(t, name+": the local mutex", last[1].kind, last[0].kind+"-local")
		for _, w := range works {
			for _, c := range w.locks {
				need.That(t, fmt.Sprintf("%s has no %s", c.store.Name, c.kind), c.store.Locks[c.kind].Dial != nil)
			}
		}
	}
}

func TestGoalsAreOfWhatIsMeasured(t *testing.T) {
	one := 1.0
	for name, p := range plans {
		b := newBenchmark(p.works())
		b.Rounds = 1
		for i, w := range p.works() {
			for j := range w.locks {
				b.Works[i].Locks[j].add(&report.Result{Procs: w.Procs, Acquisitions: 1, PerSecond: 1,
					Packets: &one, Writes: &one, AwayBound: 1, Absences: 1,
					Away: &durations.Quantiles{}})
			}
		}
		for _, g := range p.goals {
			need.Equal(t, fmt.Sprintf("%s, %+v: runs", name, g), len(g.judge(b).runs), 1)
		}
	}
}

// A goal is missed if one run of three misses it, even if the median of the runs meets it.
func TestGoalIsMetByEveryRun(t *testing.T) {
	b := &benchmark{Rounds: 3, Works: []*measured{{"w", []*series{
		{"l", map[string][]float64{inUse: {7, 1, 2}}}, {"m", map[string][]float64{inUse: {2, 1, 1}}},
	}}}}
	for _, test := range []struct {
		goal
		met  bool
		text string
	}{
		{atLeast("w", "l", inUse, 1), true, "2 (1–7)"},
		{atLeast("w", "l", inUse, 1.1), false, "2 (1–7)"},
		{atMost("w", "l", inUse, 7), true, "2 (1–7)"},
		{atMost("w", "l", inUse, 6.9), false, "2 (1–7)"},
		{goal{work: "w", lock: "l", figure: inUse, than: "m", limit: 1}, true, "2 × (1 ×–3.5 ×)"},
		{goal{work: "w", lock: "l", figure: inUse, than: "m", limit: 1.1}, false, "2 × (1 ×–3.5 ×)"},
	} {
		j := test.judge(b)
		need.That(t, fmt.Sprintf("%+v: %v", j, j.columns()), j.met == test.met && j.columns()[4] == test.text)
	}
	need.That(t, "a goal is met though a run lacks the figure", !atLeast("w", "l", writes, 0).judge(b).met)
}

func TestSpanIsMedianLeastAndMost(t *testing.T) {
	text := func(v float64) string { return fmt.Sprint(v) }
	for want, values := range map[string][]float64{"–": nil, "3": {3, 3}, "2 (1–9)": {9, 1, 2}} {
		need.Equal(t, fmt.Sprint(values), span(values, text), want)
	}
}

func TestTablesComeBetweenTheirMarks(t *testing.T) {
	first := replaced("# Title\n\n", "a", "one\n")
	both := replaced(first+"text\n", "b", "two\n")
	need.Equal(t, "the document", replaced(replaced(both, "b", "three\n"), "a", "four\n"),
		replaced(replaced("# Title\n\n", "a", "four\n")+"text\n", "b", "three\n"))
}

// The tables in the documents are generated from the figures, and must not be edited by hand.
func TestTablesAreThoseOfTheFigures(t *testing.T) {
	const docs = "../../../docs"
	for name, p := range plans {
		b, err := read(docs, p)
		if errors.Is(err, os.ErrNotExist) { // there are no measurements since the last change
			none := replaced("", p.name(), "\nNot measured yet.\n\n")
			need.That(t, "tables without figures of "+name, strings.Contains(content(t, docs, document), none))
			continue
		}
		need.OK(t, err)
		dir := docs
		if !*update {
			dir = t.TempDir()
			need.OK(t, os.WriteFile(filepath.Join(dir, document), []byte(content(t, docs, document)), 0o600))
		}
		need.OK(t, b.show(dir, p))
		need.Equal(t, "the tables of "+name, content(t, dir, document), content(t, docs, document))
		if name == "zookeeper" {
			need.Equal(t, "the picture", content(t, dir, "bench.svg"), content(t, docs, "bench.svg"))
		}
	}
}

func read(dir string, p plan) (b *benchmark, err error) {
	data, err := os.ReadFile(filepath.Join(dir, p.name()+".json"))
	if err != nil {
		return nil, err
	}
	return b, json.Unmarshal(data, &b)
}

func content(t *testing.T, dir, name string) string {
	t.Helper()
	return string(need.Get(os.ReadFile(filepath.Join(dir, name)))(t))
}
