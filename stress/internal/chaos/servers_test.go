package chaos

import (
	"context"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tierlock/tierlock/internal/child"
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
	d := &diary{stderr: io.Discard, begin: clock.Now(), faults: judge.Faults{Counts: map[string]int64{}}}
	n := &nemesis{rand.New(rand.NewPCG(1, 1)), 1, d}
	if with := len(n.serverFaults(cluster)); with != 6 {
		t.Errorf("got %d faults, want kill, stop and cut for each role", with)
	}
	n.isolateServer(t.Context(), "leader", &child.Server{}, cluster)
	n.isolateServer(t.Context(), "leader", nil, cluster) // an election takes long
	if !slices.Equal(done, []string{"isolate", "heal"}) || d.faults.Counts["cut leader off"] != 1 {
		t.Errorf("did %q, counted %v", done, d.faults.Counts)
	}
	cluster.Replace = func(context.Context) error { return nil }
	if with := len(n.serverFaults(cluster)); with != 7 {
		t.Errorf("got %d faults where nobody elects a leader, want one more", with)
	}
	cluster.Isolate, cluster.Replace = nil, nil
	if without := len(n.serverFaults(cluster)); without != 4 {
		t.Errorf("got %d faults where nothing can be cut", without)
	}
}

func TestNobodyIsCutOffWhereThatBreaksLocks(t *testing.T) {
	n := &nemesis{rand.New(rand.NewPCG(1, 1)), 1, nil}
	for s, want := range map[*store.Store]int{store.Postgres: 5, store.PostgresAdvisory: 4} {
		f := &fleet{template: load.Task{Config: load.Config{Store: s}}}
		if got := len(n.workerFaults(f, nil)); got != want {
			t.Errorf("%s: got %d faults, want %d", s.Name, got, want)
		}
	}
}
