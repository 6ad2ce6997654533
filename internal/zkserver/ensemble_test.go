package zkserver_test

import (
	"context"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/child/childtest"
	"github.com/tierlock/tierlock/internal/zkserver"
	"github.com/tierlock/tierlock/internal/zkserver/zkservertest"
)

func TestEnsembleElectsAnotherLeader(t *testing.T) {
	e := zkservertest.StartEnsemble(t, 3, zkserver.Config{NoSync: true})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	first, err := e.Leader(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if followers := e.Followers(); len(followers) != 2 {
		t.Errorf("%d followers of %d servers, want 2", len(followers), len(e.Addrs()))
	}
	first.Kill()
	second, err := e.Leader(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if second == first {
		t.Error("the dead server leads")
	}
	if err := first.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	childtest.Eventually(t, "the old leader follows", func() bool {
		mode, err := first.Mode()
		return err == nil && mode == "follower"
	})
}
