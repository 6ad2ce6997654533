package chaos

import (
	"context"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/tierlock/tierlock/internal/test/child"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/stress/internal/clock"
	"github.com/tierlock/tierlock/stress/internal/judge"
	"github.com/tierlock/tierlock/stress/internal/load"
	"github.com/tierlock/tierlock/stress/internal/store"
)

func TestMemberIsCutOffAndHealed(t *testing.T) {
	var done []string
	cluster := &store.Cluster{
		Ensemble: &child.Ensemble{Members: make([]*child.Server, 3)},
		Isolate:  func(*child.Server) { done = append(done, "isolate") },
		Heal:     func() { done = append(done, "heal") },
	}
	d := &faultLog{stderr: io.Discard, begin: clock.Now(), faults: judge.Faults{Counts: map[string]int64{}}}
	n := &nemesis{rand.New(rand.NewPCG(1, 1)), 1, d}
	need.Equal(t, "faults: kill, stop and cut for each role", len(n.serverFaults(cluster)), 6)
	n.isolateServer(t.Context(), "leader", &child.Server{}, cluster)
	n.isolateServer(t.Context(), "leader", nil, cluster) // nil: an election takes long, and there is no leader
	need.List(t, "did", done, "isolate", "heal")
	need.Equal(t, "counted", d.faults.Counts["cut leader off"], 1)
	cluster.Replace = func(context.Context) error { return nil }
	need.Equal(t, "faults of servers that elect no leader: one more", len(n.serverFaults(cluster)), 7)
	cluster.Isolate, cluster.Replace = nil, nil
	need.Equal(t, "faults where nothing can be cut", len(n.serverFaults(cluster)), 4)
}

func TestNobodyIsCutOffWhereThatBreaksLocks(t *testing.T) {
	n := &nemesis{rand.New(rand.NewPCG(1, 1)), 1, nil}
	for s, want := range map[*store.Store]int{store.Postgres: 5, store.PostgresAdvisory: 4} {
		f := &fleet{template: load.Task{Config: load.Config{Store: s}}}
		need.Equal(t, s.Name+": faults", len(n.workerFaults(f, nil)), want)
	}
}
