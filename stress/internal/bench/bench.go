// Package bench measures tierlock, and writes the results into the documents. For comparison, it also measures the lock that users of each
// store usually take, and that same lock behind a local mutex.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
	"time"

	"github.com/tierlock/tierlock/stress/internal/judge"
	"github.com/tierlock/tierlock/stress/internal/load"
	"github.com/tierlock/tierlock/stress/internal/report"
)

// rounds is how many times each measurement is repeated.
const rounds = 5

// benchmark has the results of all measurements on the servers of one store. It is written to a file in this form.
type benchmark struct {
	Environment *report.Environment `json:"environment"`
	Library     string              `json:"library"`     // the client library whose lock is the peer, and its version
	Duration    int64               `json:"duration_ns"` // the shortest duration of a run
	Took        int64               `json:"took_ns"`     // the duration of the whole benchmark
	Rounds      int                 `json:"rounds"`
	Busy        []int               `json:"busy"` // the rounds that began while other programs used the processors
	Works       []*measured         `json:"works"`
}

// measured is a workload with its results for each lock.
type measured struct {
	Work  string    `json:"work"`
	Locks []*series `json:"locks"`
}

var errInterrupted = errors.New("interrupted; nothing was written")

// Has reports whether there are measurements planned for the store with this name.
func Has(store string) bool {
	_, ok := plans[store]
	return ok
}

// Run makes the measurements that are planned for a store, on a private server. cfg has the duration and the seed. Run writes the results
// to the documents in dir, either all of them or none. It prints to stdout whether the goals are met.
func Run(ctx context.Context, cfg load.Config, dir string, stdout, stderr io.Writer) error {
	p := plans[cfg.Store.Name]
	b, err := p.measure(ctx, cfg, p.works(), rounds, stderr)
	if err != nil {
		return err
	}
	if err := b.write(dir, p); err != nil {
		return err
	}
	return b.print(stdout, p.goals)
}

func (p plan) measure(ctx context.Context, cfg load.Config, works []work, rounds int, stderr io.Writer) (*benchmark, error) {
	server, err := cfg.Store.Start(ctx, cfg.Shape())
	if err != nil {
		return nil, err
	}
	defer server.Stop()
	cfg.Use(server)
	b := newBenchmark(works)
	b.Environment, b.Library, b.Duration, b.Rounds = cfg.Environment(), version(p.library), cfg.Duration.Nanoseconds(), rounds
	start := time.Now()
	for n := range rounds {
		fmt.Fprintf(stderr, "stress: round %d of %d\n", n+1, rounds)
		if !load.Quiet() {
			b.Busy = append(b.Busy, n+1)
		}
		for i, w := range works {
			fmt.Fprintln(stderr, "stress:", w.name())
			found, err := w.measure(ctx, cfg, n)
			if err != nil {
				return nil, err
			}
			for j, r := range found {
				b.Works[i].Locks[j].add(r)
			}
		}
	}
	b.Took = time.Since(start).Nanoseconds()
	return b, nil
}

func newBenchmark(works []work) *benchmark {
	b := &benchmark{}
	for _, w := range works {
		m := &measured{Work: w.name()}
		for _, c := range w.locks {
			m.Locks = append(m.Locks, &series{c.name, map[string][]float64{}})
		}
		b.Works = append(b.Works, m)
	}
	return b
}

func (w work) name() string { return w.with(w.locks[0]).Result().Work() }

// work.with returns the configuration of the workload for one lock.
func (w work) with(c contestant) *load.Config {
	shape := w.Config
	shape.Store, shape.Lock, shape.HandOff, shape.Linger, shape.Paths = c.store, c.kind, c.handOff, c.linger, max(1, w.Paths)
	return &shape
}

// A cycle is the time in which each goroutine of all processes can usually acquire the lock once. If that takes longer in a workload, the
// runs of that workload are longer in proportion.
const cycle = 500 * time.Millisecond

func (w work) length(least time.Duration) time.Duration {
	once := w.Section * time.Duration(w.Procs*w.Goroutines)
	return time.Duration(float64(least) * max(1, once.Seconds()/cycle.Seconds()))
}

// measure runs the workload once with each lock. Each round begins with another lock, so that the order favors no lock.
func (w work) measure(ctx context.Context, cfg load.Config, round int) ([]*report.Result, error) {
	found := make([]*report.Result, len(w.locks))
	for i := range w.locks {
		i = (i + round) % len(w.locks)
		c := w.locks[i]
		shape := w.with(c)
		shape.Servers, shape.Duration, shape.Seed = cfg.Servers, w.length(cfg.Duration), cfg.Seed
		r, err := load.Measure(ctx, *shape)
		switch {
		case ctx.Err() != nil:
			return nil, errInterrupted
		case err != nil:
			return nil, fmt.Errorf("%s, %s: %w", w.name(), c.name, err)
		case r.Verdict != "PASS" && r.Acquisitions > 0 && shape.Kind().Tier: // only tierlock's locks have promises to keep
			return nil, fmt.Errorf("%s, %s: %s: %v; nothing was written", w.name(), c.name, r.Verdict, r.Violations())
		}
		found[i] = r
	}
	for i, c := range w.locks {
		if i+1 < len(w.locks) && judge.Promises(found[i]) && c.handOff == nil && w.locks[i+1].handOff == &strict {
			judge.BoundAbsence(found[i], nil, found[i+1].HandOver, false) // the bound uses the transfer times of the same round
		}
	}
	return found, nil
}

// The method figure returns the values of one figure in all runs of a workload with a lock.
func (b *benchmark) figure(work, lock, name string) []float64 {
	for _, m := range b.Works {
		for _, s := range m.Locks {
			if m.Work == work && s.Lock == lock {
				return s.Figures[name]
			}
		}
	}
	return nil
}

// version returns the version of a module that is linked into this program.
func version(module string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == module {
				return strings.TrimPrefix(module, "github.com/") + " " + m.Version
			}
		}
	}
	return module
}
