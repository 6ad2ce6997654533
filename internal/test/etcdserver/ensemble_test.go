package etcdserver_test

import (
	"slices"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/etcdserver"
	"github.com/tierlock/tierlock/internal/test/need"
)

func TestIsolatedLeaderIsDeposedAndReturns(t *testing.T) {
	e := childtest.StartEnsemble(t, etcdserver.StartEnsemble, 3, etcdserver.Config{NoSync: true})
	alone := leader(t, e)
	rest := others(e, alone)

	e.Isolate(alone)
	childtest.Eventually(t, "the others have a leader", func() bool { return slices.ContainsFunc(rest, leads) })
	for _, s := range rest {
		childtest.Eventually(t, "the others go on", func() bool { return put(s.Addr(), "k", "theirs") == nil })
	}
	childtest.Eventually(t, "the isolated server, which still takes clients, knows that it leads no longer", func() bool {
		_, modeErr := alone.Mode()
		_, versionErr := alone.Version()
		return modeErr != nil && versionErr == nil
	})
	need.That(t, "the isolated server answers", need.ErrOf(get(alone.Addr(), "k")) != nil)

	e.Heal()
	childtest.Eventually(t, "the isolated server is back and has what it missed", func() bool {
		value, err := get(alone.Addr(), "k")
		return err == nil && value == "theirs" && modeOf(alone) != ""
	})
}

func TestKilledMemberComesBackWhileAnotherIsIsolated(t *testing.T) {
	e := childtest.StartEnsemble(t, etcdserver.StartEnsemble, 3, etcdserver.Config{NoSync: true})
	alone := leader(t, e)
	e.Isolate(alone)
	killed := others(e, alone)[0]
	killed.Kill()
	need.OK(t, killed.Restart(t.Context()))
	e.Heal()
	childtest.Eventually(t, "all serve", func() bool {
		return !slices.ContainsFunc(e.Members, func(s *etcdserver.Server) bool { return put(s.Addr(), "k", "v") != nil })
	})
}

func leader(t *testing.T, e *etcdserver.Ensemble) *etcdserver.Server {
	t.Helper()
	return need.Get(e.Leader(need.Within(t, 20*time.Second)))(t)
}

func others(e *etcdserver.Ensemble, s *etcdserver.Server) []*etcdserver.Server {
	return slices.DeleteFunc(slices.Clone(e.Members), func(other *etcdserver.Server) bool { return other == s })
}

func leads(s *etcdserver.Server) bool { return modeOf(s) == "leader" }

// modeOf returns the mode of a server. If the server serves no requests, it returns "".
func modeOf(s *etcdserver.Server) string {
	mode, _ := s.Mode()
	return mode
}
