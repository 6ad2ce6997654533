package mysqlserver_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/mysqlserver"
	"github.com/tierlock/tierlock/internal/test/need"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestServer(t *testing.T) {
	childtest.Run(t, childtest.Make{
		Start: func(t *testing.T) *mysqlserver.Server {
			return childtest.Start(t, mysqlserver.Start, mysqlserver.Config{})
		},
		Mode: "leader", Release: `^\d+\.\d+\.\d+$`,
		Put: func(t *testing.T, s *mysqlserver.Server, value string) {
			need.Get(mysqlserver.Ask(s.Addr(), "CREATE TABLE plain.kept ENGINE = InnoDB SELECT '"+value+"' AS v"))(t)
		},
		Get: func(_ *testing.T, s *mysqlserver.Server) (string, error) {
			return mysqlserver.Ask(s.Addr(), "SELECT v FROM plain.kept")
		},
	})
}

func TestMissingServerSaysWhereItWasLookedFor(t *testing.T) {
	t.Setenv("MARIADB_HOME", t.TempDir())
	_, err := mysqlserver.Start(t.Context(), mysqlserver.Config{})
	need.WantErr(t, "Start", err, mysqlserver.ErrNotFound)
	need.WantMention(t, err, "get-mariadb.sh", "$MARIADB_HOME: ")
}
