package pgserver_test

import (
	"slices"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/pgserver"
)

func TestFailoverLosesNoSynchronousWrite(t *testing.T) {
	t.Parallel()
	e := childtest.StartEnsemble(t, pgserver.StartEnsemble, 3, pgserver.Config{NoSync: true, Synchronous: true})
	write(t, leader(t, e), "CREATE TABLE kept AS SELECT 1 AS n")
	for i := range 2 {
		old := leader(t, e)
		write(t, old, "UPDATE kept SET n = n + 1")
		need.OK(t, e.Failover(t.Context()))
		now := leader(t, e)
		need.That(t, "the same server leads after Failover", now != old)
		need.Equal(t, "the rows after Failover", read(t, now, "SELECT n FROM kept"), []string{"2", "3"}[i])
		childtest.Eventually(t, "all the others follow", func() bool {
			return read(t, now, "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'") == "2"
		})
	}
}

func TestIsolatedPrimaryGoesOnAndReachesNobody(t *testing.T) {
	t.Parallel()
	e := childtest.StartEnsemble(t, pgserver.StartEnsemble, 2, pgserver.Config{NoSync: true})
	primary, standby := e.Members[0], e.Members[1]
	write(t, primary, "CREATE TABLE kept AS SELECT 1 AS n")
	childtest.Eventually(t, "the standby has it", func() bool { return read(t, standby, "SELECT n FROM kept") == "1" })
	e.Isolate(primary)
	write(t, primary, "UPDATE kept SET n = 2")
	need.OK(t, e.Promote(t.Context(), standby))
	need.Equal(t, "rows of the isolated primary that the promoted standby has", read(t, standby, "SELECT n FROM kept"), "1")
	write(t, standby, "UPDATE kept SET n = 3")
	write(t, primary, "UPDATE kept SET n = 4")
	e.Heal()
	need.Equal(t, "the rows of the old primary", read(t, primary, "SELECT n FROM kept"), "4")
}

func leader(t *testing.T, e *pgserver.Ensemble) *pgserver.Server {
	t.Helper()
	s := need.Get(e.Leader(need.Within(t, 20*time.Second)))(t)
	need.That(t, s.Addr()+" is no member", slices.Contains(e.Members, s))
	return s
}

func write(t *testing.T, s *pgserver.Server, query string) {
	t.Helper()
	if out, err := ask(t, pgserver.URL(s.Addr()), query); err != nil {
		t.Fatalf("%s: %v: %s", query, err, out)
	}
}

// The function read returns the server's answer, which may be the text of an error.
func read(t *testing.T, s *pgserver.Server, query string) string {
	t.Helper()
	out, _ := ask(t, pgserver.URL(s.Addr()), query)
	return out
}
