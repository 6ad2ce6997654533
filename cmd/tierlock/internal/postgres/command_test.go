//go:build linux || darwin || freebsd

package postgres

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/command/commandtest"
	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/pgserver"
	"github.com/tierlock/tierlock/pglock"
	"github.com/tierlock/tierlock/tier"
)

// The server for all tests has the schema.
func TestMain(m *testing.M) {
	commandtest.Main(m, func() (*pgserver.Server, error) {
		server, err := pgserver.Start(context.Background(), pgserver.Config{})
		if err != nil {
			return nil, err
		}
		return server, prepare(context.Background(), server)
	})
}

func startServer(t *testing.T) *pgserver.Server { return commandtest.Server(t) }

func prepare(ctx context.Context, server *pgserver.Server) error {
	pool, err := pgxpool.New(ctx, pgserver.PlainURL(server.Addr()))
	if err != nil {
		return err
	}
	defer pool.Close()
	return pglock.Migrate(ctx, pool)
}

func at(url string) []string { return []string{"TIERLOCK_STORE=" + url} }

func TestCommand(t *testing.T) {
	t.Parallel()
	commandtest.Run(t, func(t *testing.T, own bool) commandtest.Site {
		server := startServer(t)
		if own {
			server = childtest.Start(t, pgserver.Start, pgserver.Config{NoSync: true})
			need.OK(t, prepare(t.Context(), server))
		}
		return commandtest.Site{
			Env:     at(pgserver.PlainURL(server.Addr())),
			Nowhere: at(pgserver.PlainURL("127.0.0.1:1")),
			Server:  server,
			Locks: func(t *testing.T, label string) (*tier.Registry, error) {
				pool, err := pgxpool.New(t.Context(), pgserver.PlainURL(server.Addr()))
				if err != nil {
					return nil, err
				}
				t.Cleanup(pool.Close)
				return pglock.New(t.Context(), pool, tier.WithLabel(label))
			},
			Forget: func() error {
				execute(t, pgserver.PlainURL(server.Addr()), "UPDATE tierlock.grace_period SET life = 'another'")
				return nil
			},
		}
	})
}

// A database without the schema is reported differently from a missing server, and the message says what to do.
func TestWithoutTheSchema(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	other := at(pgserver.URL(server.Addr())) // another database
	for _, line := range []string{"run /x -- true", "ls", "doctor /x"} {
		commandtest.Want(t, other, line, 64, "has no schema tierlock; run tierlock migrate or pglock.Migrate")
	}
}

// makeDatabase creates a database without the schema, and returns its URL.
func makeDatabase(t *testing.T, name string) string {
	t.Helper()
	server := pgserver.URL(startServer(t).Addr())
	execute(t, server, "DROP DATABASE IF EXISTS "+name, "CREATE DATABASE "+name)
	url, query, _ := strings.Cut(server, "?")
	return url[:strings.LastIndex(url, "/")+1] + name + "?" + query
}

// execute executes statements on a server, each separately.
func execute(t *testing.T, url string, all ...string) {
	t.Helper()
	pool := need.Get(pgxpool.New(t.Context(), url))(t)
	defer pool.Close()
	for _, sql := range all {
		need.Get(pool.Exec(t.Context(), sql))(t)
	}
}

func TestMigrateMakesTheSchema(t *testing.T) {
	t.Parallel()
	url := makeDatabase(t, "migrated")
	commandtest.Want(t, at(url), "ls", 64, "no schema")
	for range 2 {
		commandtest.Want(t, at(url), "migrate", 0, "^database migrated has the schema tierlock\n$")
	}
	commandtest.Want(t, at(url), "run /x -- true", 0)
	commandtest.Want(t, at(url), "migrate twice", 64, `unexpected argument "twice"`)
	commandtest.Want(t, at(pgserver.PlainURL("127.0.0.1:1")), "-connect-timeout 50ms migrate", 69)
	commandtest.Want(t, at("postgres://127.0.0.1:none/"), "migrate", 64, "the URL of the database: ")
	commandtest.Want(t, at(url), "migrat", 64, "there is no subcommand")
}

func TestMigrateSaysWhyItCannot(t *testing.T) {
	t.Parallel()
	url := makeDatabase(t, "refusing")
	execute(t, url, "CREATE ROLE nobody_here LOGIN")
	config := need.Get(pgxpool.ParseConfig(url))(t)
	commandtest.Want(t, at(strings.Replace(url, config.ConnConfig.User+"@", "nobody_here@", 1)), "migrate", 70, "permission denied")
	execute(t, url, "CREATE SCHEMA tierlock")
	commandtest.Want(t, at(url), "migrate", 70, "no schema tierlock of the right version")
}

func TestSchemaIsTheSQLOfMigrate(t *testing.T) {
	t.Parallel()
	url := makeDatabase(t, "by_hand")
	execute(t, url, commandtest.Want(t, at(pgserver.PlainURL("127.0.0.1:1")), "schema", 0))
	commandtest.Want(t, at(url), "run /x -- true", 0)
	commandtest.Want(t, at(url), "help schema", 0, "usage: tierlock schema\n", "\n  tierlock schema [|] psql")
}

// A missing privilege is reported as such. A host name that does not exist is reported like a missing server.
func TestPrivileges(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	plain := pgserver.PlainURL(server.Addr())
	execute(t, pgserver.URL(server.Addr()), "CREATE ROLE looker LOGIN")
	execute(t, plain, "GRANT USAGE ON SCHEMA tierlock TO looker; GRANT SELECT ON ALL TABLES IN SCHEMA tierlock TO looker")
	user, _, _ := strings.Cut(strings.TrimPrefix(plain, "postgres://"), "@")
	as := func(name string) []string { return at(strings.Replace(plain, user+"@", name+"@", 1)) }
	commandtest.Want(t, as("looker"), "doctor /x", 1, "problem +these credentials cannot queue")
	commandtest.Want(t, as("nobody-at-all"), "who /x", 69, "nobody-at-all")
	commandtest.Want(t, append(at(plain), "TIERLOCK_AUTH=nobody-by-file:x"), "who /x", 69, "nobody-by-file")
	commandtest.Want(t, at(plain), "who /x -tls", 64, "the -tls flags are not for PostgreSQL; its URL says such as .sslmode=verify-full")
	commandtest.Want(t, at("postgres://127.0.0.1:none/"), "who /x", 64, "the URL of the database: ")
}
