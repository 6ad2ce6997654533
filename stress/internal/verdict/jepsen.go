package verdict

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/tierlock/tierlock/stress/internal/chaos"
	"github.com/tierlock/tierlock/stress/internal/load"
	"github.com/tierlock/tierlock/stress/internal/report"
	"github.com/tierlock/tierlock/stress/internal/store"
)

// jepsen is how long the workloads run on each store.
const jepsen = 20 * time.Second

// workload runs the three lock workloads that Jepsen has for etcd, in a single run. It checks the history of acquisitions and releases
// against a model. It also checks what owners read and write under the lock, both with and without a token. Five processes use the lock,
// with two goroutines each.
func workload(ctx context.Context, s *store.Store, seed uint64, stderr io.Writer) (*report.Result, error) {
	cfg := load.Config{
		Store: s, Lock: store.Mutex.String(), Procs: 5, Goroutines: 2, Paths: 1, Section: 5 * time.Millisecond,
		Duration: jepsen, Seed: seed, Chaos: true, Ensemble: 1,
	}
	cluster, err := s.Start(ctx, cfg.Shape())
	if err != nil {
		return nil, err
	}
	defer cluster.Stop() //nolint:errcheck // The run has its result.
	cfg.Use(cluster)
	return chaos.Run(ctx, cfg, cluster, "", stderr)
}

// The method workloads runs Jepsen's workloads on all stores, one store after the other.
func (f *findings) workloads(ctx context.Context, stdout, stderr io.Writer) {
	for _, s := range own {
		r, err := workload(ctx, s.Store, f.seed, stderr)
		rows := fmt.Sprintf("| %s | all | no result: %v | | | |", s.Title, err)
		if err == nil {
			c, writes := r.Chaos, r.Chaos.FencedWrites+r.Chaos.FencedRefused
			row := func(workload string, operations int64, result string, counts ...any) string {
				return fmt.Sprintf("| %s | %s | %v | %d | %s | %s |",
					s.Title, workload, time.Duration(c.SessionTimeout), operations, fmt.Sprintf(result, counts...), r.Verdict)
			}
			rows = row("`lock`", r.Acquisitions, "history %s; overlaps: %d before a loss was reported, %d after",
				c.History, r.Overlaps, c.WouldBeOverlaps) + "\n" +
				row("`lock-set`, no token", writes, "%d lost updates", c.UnfencedLostUpdates) + "\n" +
				row("`lock-etcd-set`, token", writes, "%d lost updates, %d writes refused", r.LostUpdates, c.FencedRefused)
			f.failed = f.failed || r.Verdict != "PASS"
		}
		f.failed = f.failed || err != nil
		f.jepsen = append(f.jepsen, rows)
		fmt.Fprintln(stdout, rows)
	}
}

// workloadsText writes the section of the document about the workloads.
func (f *findings) workloadsText(w *strings.Builder) {
	if f.jepsen == nil {
		return
	}
	fmt.Fprintf(w, `
## Jepsen's workloads

[Jepsen](https://github.com/jepsen-io/etcd) tests the locks of etcd with three workloads. `+"`lock`"+` compares acquisitions and releases
with a model. `+"`lock-set`"+` updates a set that the lock guards. `+"`lock-etcd-set`"+` updates a set,
and the store checks the lock in each write. We ran all three workloads in one run of %v on each store. In place of a set, our run
has a counter; in place of the check in the store, it compares fencing tokens. Five processes with two goroutines each are stopped, killed
and cut off. The server is also stopped and killed. Leases in Jepsen's own tests last 2 s. Without the token, updates may be lost only after
a process has learned of its loss. With the token, no update may be lost.

| | workload | lease | operations | result | verdict of the run |
|---|---|---|---|---|---|
%s
`, jepsen, strings.Join(f.jepsen, "\n"))
}
