//go:build linux || darwin || freebsd

package mysql

import (
	"context"
	"database/sql"
	"testing"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/command/commandtest"
	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/mysqlserver"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/mysqllock"
	"github.com/tierlock/tierlock/tier"
)

// The server for all tests has the tables.
func TestMain(m *testing.M) {
	commandtest.Main(m, func() (*mysqlserver.Server, error) {
		server, err := mysqlserver.Start(context.Background(), mysqlserver.Config{})
		if err != nil {
			return nil, err
		}
		return server, prepare(context.Background(), server)
	})
}

func startServer(t *testing.T) *mysqlserver.Server { return commandtest.Server(t) }

func prepare(ctx context.Context, server *mysqlserver.Server) error {
	db, err := sql.Open("mysql", mysqlserver.DSN(server.Addr()))
	if err != nil {
		return err
	}
	defer db.Close()
	return mysqllock.Migrate(ctx, db)
}

func at(url string) []string { return []string{"TIERLOCK_STORE=" + url} }

func execute(t *testing.T, addr string, all ...string) {
	t.Helper()
	db := need.Get(sql.Open("mysql", mysqlserver.RootDSN(addr)))(t)
	defer db.Close()
	for _, sql := range all {
		need.Get(db.ExecContext(t.Context(), sql))(t)
	}
}

func TestCommand(t *testing.T) {
	t.Parallel()
	commandtest.Run(t, func(t *testing.T, own bool) commandtest.Site {
		server := startServer(t)
		if own {
			server = childtest.Start(t, mysqlserver.Start, mysqlserver.Config{NoSync: true})
			need.OK(t, prepare(t.Context(), server))
		}
		return commandtest.Site{
			Env:     at(mysqlserver.URL(server.Addr())),
			Nowhere: at(mysqlserver.URL("127.0.0.1:1")),
			Server:  server,
			Locks: func(t *testing.T, label string) (*tier.Registry, error) {
				db, err := sql.Open("mysql", mysqlserver.DSN(server.Addr()))
				if err != nil {
					return nil, err
				}
				t.Cleanup(func() { db.Close() })
				return mysqllock.New(t.Context(), db, tier.WithLabel(label))
			},
			Forget: func() error {
				execute(t, server.Addr(), "UPDATE tierlock_state SET life = 'another'")
				return nil
			},
		}
	})
}

// A database without the tables is reported differently from a missing server. Migrate creates the tables.
func TestMigrateMakesTheTables(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	execute(t, server.Addr(), "DROP DATABASE IF EXISTS migrated", "CREATE DATABASE migrated", "GRANT ALL ON migrated.* TO plain")
	url := "mysql://plain@" + server.Addr() + "/migrated"
	for _, line := range []string{"run /x -- true", "ls", "doctor /x"} {
		commandtest.Want(t, at(url), line, 64, "has no tierlock tables; run tierlock migrate or mysqllock.Migrate")
	}
	for range 2 {
		commandtest.Want(t, at(url), "migrate", 0, "^database migrated has the tierlock tables\n$")
	}
	commandtest.Want(t, at(url), "run /x -- true", 0)
	commandtest.Want(t, at(mysqlserver.URL("127.0.0.1:1")), "-connect-timeout 50ms migrate", 69)
	for _, wrong := range []string{"mysql://127.0.0.1:none/x", "mysql://127.0.0.1:1", "mysql://a,b/x", "mysql:///x"} {
		commandtest.Want(t, at(wrong), "migrate", 64, "the URL (of the database|names no database)")
	}
}

// Doctor names a missing right. For an unknown user, the exit status is the same as without a server.
func TestRights(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	execute(t, server.Addr(), "CREATE USER looker", "GRANT SELECT, EXECUTE ON plain.* TO looker")
	as := func(name string) []string { return at("mysql://" + name + "@" + server.Addr() + "/plain") }
	commandtest.Want(t, as("looker"), "doctor /x", 1, "problem +these credentials cannot queue: .*INSERT command denied")
	commandtest.Want(t, as("stranger"), "who /x", 69, "stranger")
	commandtest.Want(t, append(as("plain"), "TIERLOCK_AUTH=by-file:x"), "who /x", 69, "by-file")
	commandtest.Want(t, as("plain"), "who /x -tls", 64, "the -tls flags are not for MySQL; its URL says such as .tls=true")
}
