//go:build unix

package everystore

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/tierlock/tierlock/contrib/gooselock"
	"github.com/tierlock/tierlock/internal/test/mysqlserver"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/pgserver"
	"github.com/tierlock/tierlock/internal/test/waittest"
	"github.com/tierlock/tierlock/pglock"
	"github.com/tierlock/tierlock/tier"
)

// The first process fails in its second migration. The second process waits for the first one, and then runs that migration. The lock is on
// the server whose database is migrated.
func TestGooseMigratesOneProcessAtATime(t *testing.T) {
	t.Parallel()
	need.Each(t, map[string]migrated{
		"PostgreSQL": {startPostgres, postgres(pglock.New), "pgx", plainURL, goose.DialectPostgres},
		"MySQL":      {startMySQL, mySQL, "mysql", mysqlserver.DSN, goose.DialectMySQL},
	}, testGoose)
}

func plainURL(addr string) string { return pgserver.PlainURL(addr) }

// A migrated value describes a server with a database and the lock for its migrations.
type migrated struct {
	start   func(*testing.T) string
	connect connect
	driver  string
	at      func(addr string) string
	dialect goose.Dialect
}

func testGoose(t *testing.T, m migrated) {
	t.Parallel()
	s := site{m.start(t), m.connect}
	db := need.Get(sql.Open(m.driver, m.at(s.addr)))(t)
	defer db.Close()
	need.Get(db.Exec("CREATE TABLE steps (version INT PRIMARY KEY, who VARCHAR(20))"))(t)
	inside, fail := make(chan struct{}), make(chan struct{})
	first := migrate(t, m, db, s.process(t).Mutex(pathOf(t)), "the first", func() error {
		close(inside)
		<-fail
		return context.Canceled
	})
	<-inside
	second := migrate(t, m, db, s.process(t).Mutex(pathOf(t)), "the second", func() error { return nil })
	operator := s.process(t).Mutex(pathOf(t))
	waittest.Eventually(t, "the second waits", func() bool {
		all, err := operator.Contenders(t.Context())
		return err == nil && len(all) == 2
	})
	need.Equal(t, "migrations that have ended", len(first)+len(second), 0)
	close(fail)
	need.WantErr(t, "the first", <-first, context.Canceled)
	need.WantErr(t, "the second", <-second, nil)
	for version, want := range map[int]string{1: "the first", 2: "the second", 3: "the second"} {
		var who string
		need.WantErr(t, "SELECT", db.QueryRow(fmt.Sprintf("SELECT who FROM steps WHERE version = %d", version)).Scan(&who), nil)
		need.Equal(t, fmt.Sprintf("step %d was done by", version), who, want)
	}
}

// The function migrate makes another process run three migrations, and sends the result on the channel. The second migration calls middle.
func migrate(t *testing.T, m migrated, db *sql.DB, mutex *tier.Mutex, who string, middle func() error) <-chan error {
	t.Helper()
	step := func(version int64, then func() error) *goose.Migration {
		return goose.NewGoMigration(version, &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO steps VALUES (%d, '%s')", version, who)); err != nil {
				return err
			}
			return then()
		}}, nil)
	}
	done := func() error { return nil }
	provider := need.Get(goose.NewProvider(m.dialect, db, nil, goose.WithDisableGlobalRegistry(true),
		goose.WithGoMigrations(step(1, done), step(2, middle), step(3, done)), goose.WithLocker(gooselock.New(mutex))))(t)
	ended := make(chan error, 1)
	go func() {
		_, err := provider.Up(t.Context())
		ended <- err
	}()
	return ended
}
