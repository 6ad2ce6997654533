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

// jepsen is for how long the workloads run on each store.
const jepsen = 20 * time.Second

// workload is Jepsen's three workloads for locks of etcd, in one run: the history of acquisitions and releases against a model, and what
// owners read and write under the lock, without and with its token. Two goroutines in each of five processes want the lock.
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

// workloads runs them on one store after the other.
func (f *findings) workloads(ctx context.Context, stdout, stderr io.Writer) {
	for _, s := range own {
		r, err := workload(ctx, s.Store, f.seed, stderr)
		row := fmt.Sprintf("| %s | no result: %v | | | |", s.Title, err)
		if err == nil {
			c := r.Chaos
			row = fmt.Sprintf("| %s | %v | %d acquisitions, history %s | %d lost updates; %d overlaps before a loss was reported, %d after | "+
				"%d writes, %d refused, %d lost updates | %s |", s.Title, time.Duration(c.SessionTimeout), r.Acquisitions, c.History,
				c.UnfencedLostUpdates, r.Overlaps, c.WouldBeOverlaps, c.FencedWrites, c.FencedRefused, r.LostUpdates, r.Verdict)
			f.failed = f.failed || r.Verdict != "PASS"
		}
		f.failed = f.failed || err != nil
		f.jepsen = append(f.jepsen, row)
		fmt.Fprintln(stdout, row)
	}
}

// workloadsText is what the document says of them.
func (f *findings) workloadsText(w *strings.Builder) {
	if f.jepsen == nil {
		return
	}
	fmt.Fprintf(w, `
## Jepsen's workloads

Jepsen judges the locks of etcd by three workloads: a model of acquiring and releasing, a set that the lock guards, and the same set
guarded by the token, too. Here they run for %v on tierlock with each store. A counter stands in for the set. Five processes with two
goroutines each are stopped, killed and cut off, and so is the server. Without the token, updates may be lost only after a loss was
reported. With it, none may.

| | lease | lock | counter | counter with the token | verdict |
|---|---|---|---|---|---|
%s
`, jepsen, strings.Join(f.jepsen, "\n"))
}
