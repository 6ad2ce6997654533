// Package bench measures all that tierlock is held against, beside the store's own lock,
// and writes it down.
package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/tierlock/tierlock/stress/internal/load"
	"github.com/tierlock/tierlock/stress/internal/report"
	"github.com/tierlock/tierlock/stress/internal/report/page"
	"github.com/tierlock/tierlock/stress/internal/store"
)

// rounds is how many times each trial is measured.
const rounds = 3

// benchmark is what bench.json holds. Durations are in nanoseconds.
type benchmark struct {
	Environment *report.Environment `json:"environment"`
	Duration    int64               `json:"duration_ns"` // of each run
	Trials      []measured          `json:"configurations"`
	GoBench     []goBench           `json:"go_bench"` // null without the go command and the sources
	Goals       []judged            `json:"goals"`

	store *store.Store
}

// measured is a trial and what it found.
type measured struct {
	Name   string           `json:"name"`
	Runs   []*report.Result `json:"runs"`
	Median int              `json:"median"` // index of the run that stands for all, the middle one by ratio or rate
}

// works is what is measured on each store, and how it ought to be.
var works = map[string]struct {
	trials []trial
	goals  []goal
}{
	"zookeeper":         {trials, goals},
	"etcd":              {etcdTrials, etcdGoals},
	"postgres":          {postgresTrials, postgresGoals},
	"postgres-advisory": {postgresTrials, postgresGoals},
	"redis":             {redisTrials, redisGoals},
}

var errInterrupted = errors.New("interrupted; nothing was written")

// Run measures all trials of a store on one private server, with the duration and the
// seed of cfg, and writes what it found to dir, which it makes if need be: all of it, or
// nothing. stdout gets the goals.
func Run(ctx context.Context, cfg load.Config, dir string, stdout, stderr io.Writer) error {
	work := works[cfg.Store.Name]
	b, err := measure(ctx, cfg, work.trials, work.goals, stderr)
	if err != nil {
		return err
	}
	if cfg.Store == store.ZooKeeper { // once is enough: no store is asked
		fmt.Fprintln(stderr, "stress: single calls")
		if err := b.addGoBench(ctx); ctx.Err() != nil {
			return errInterrupted
		} else if err != nil {
			fmt.Fprintln(stderr, "stress: go on without single calls:", err)
		}
	}
	if err := b.write(dir); err != nil {
		return err
	}
	return b.print(stdout)
}

func measure(ctx context.Context, cfg load.Config, trials []trial, goals []goal, stderr io.Writer) (*benchmark, error) {
	server, err := cfg.Store.Start(ctx, cfg.Shape())
	if err != nil {
		return nil, err
	}
	defer server.Stop()
	cfg.Use(server)
	b := &benchmark{Environment: cfg.Environment(), Duration: cfg.Duration.Nanoseconds(), store: cfg.Store}
	for _, t := range trials {
		b.Trials = append(b.Trials, measured{Name: t.name})
	}
	var found []round
	for n := range rounds {
		fmt.Fprintf(stderr, "stress: round %d of %d\n", n+1, rounds)
		r, err := b.round(ctx, cfg, trials, stderr)
		if err != nil {
			return nil, err
		}
		found = append(found, r)
	}
	for i := range b.Trials {
		b.Trials[i].choose()
	}
	for _, g := range goals {
		j, err := g.judge(found)
		if err != nil {
			return nil, err
		}
		b.Goals = append(b.Goals, j)
	}
	return b, nil
}

// round measures each trial once.
func (b *benchmark) round(ctx context.Context, cfg load.Config, trials []trial, stderr io.Writer) (round, error) {
	r := round{}
	for i, t := range trials {
		fmt.Fprintln(stderr, "stress:", t.name)
		result, err := t.run(ctx, cfg)
		if err != nil {
			return nil, err
		}
		if t.beside != "" {
			result.Compare(r[t.beside].Baseline)
		}
		r[t.name] = result
		b.Trials[i].Runs = append(b.Trials[i].Runs, result)
	}
	return r, nil
}

func (t trial) run(ctx context.Context, cfg load.Config) (*report.Result, error) {
	shape := t.shape
	shape.Lock, shape.Paths = cmp.Or(shape.Lock, "mutex"), max(1, shape.Paths)
	shape.Store, shape.Servers, shape.Duration, shape.Seed = cfg.Store, cfg.Servers, cfg.Duration, cfg.Seed
	result, err := load.Run(ctx, shape)
	switch {
	case ctx.Err() != nil:
		return nil, errInterrupted
	case err != nil:
		return nil, fmt.Errorf("%s: %w", t.name, err)
	case result.Verdict != "PASS":
		return nil, fmt.Errorf("%s: %s: %v; nothing was written", t.name, result.Verdict, result.Violations())
	case result.Baseline != nil && result.Baseline.Acquisitions == 0:
		return nil, fmt.Errorf("%s: the baseline acquired nothing; nothing was written", t.name)
	}
	result.Environment = nil // that of all
	return result, nil
}

// choose finds the run that stands for all.
func (m *measured) choose() {
	order := make([]int, len(m.Runs))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		a, b := m.Runs[i], m.Runs[j]
		return cmp.Or(cmp.Compare(a.Ratio, b.Ratio), cmp.Compare(a.PerSecond, b.PerSecond))
	})
	m.Median = order[(len(order)-1)/2]
}

// fileIn is the file of that name and ending, which has the store in it but for ZooKeeper.
func (b *benchmark) fileIn(dir, name, ending string) string {
	if b.store != store.ZooKeeper {
		name += "-" + b.store.Name
	}
	return filepath.Join(dir, name+ending)
}

// write puts bench.json, report.html and bench.svg into dir, which it makes if need be.
func (b *benchmark) write(dir string) error {
	data, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return err
	}
	p := b.page()
	picture, err := p.TurnsSVG(map[string]string{many: "tierlock", strictly: "tierlock, strict order"})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(b.fileIn(dir, "bench", ".json"), append(data, '\n'), 0o644),
		os.WriteFile(b.fileIn(dir, "bench", ".svg"), []byte(picture), 0o644),
		p.WriteFile(b.fileIn(dir, "report", ".html")))
}

// peers are the locks that tierlock is compared with. It is the first one's figures that
// are put beside those of a goal.
func (b *benchmark) peers() (names []string) {
	for _, lock := range b.store.Baselines {
		names = append(names, report.NameOf(lock))
	}
	return names
}

func (b *benchmark) page() *page.Page {
	p := &page.Page{
		Title: "tierlock beside " + strings.Join(b.peers(), ", "),
		Summary: fmt.Sprintf("Processes × goroutines that want one lock, or one of several at random, for %s each, on one private %s on "+
			"the same machine. Each piece of work is done with %s and right after that with tierlock, %d times. "+
			"Goals are held against medians; all else is of the run in the middle. Only ratios mean anything on another machine.",
			report.Duration(time.Duration(b.Duration)), b.store.Title, strings.Join(b.peers(), " or "), rounds),
		Peer:        b.peers()[0],
		Environment: b.Environment.Facts(),
	}
	for _, g := range b.Goals {
		p.Goals = append(p.Goals, g.drawn())
	}
	for _, m := range b.Trials {
		p.Comparisons = append(p.Comparisons, page.Comparison{Work: m.Name, Result: m.Runs[m.Median]})
	}
	return p
}

func (b *benchmark) print(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "work\tfigure\tgoal\tmeasured\t%s\t\n", b.peers()[0])
	for _, j := range b.Goals {
		g := j.drawn()
		verdict := "met"
		if !g.Met {
			verdict = "missed"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", g.Work, g.Figure, g.Goal, g.Measured, g.Beside, verdict)
	}
	return table.Flush()
}
