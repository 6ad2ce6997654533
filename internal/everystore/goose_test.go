//go:build unix

package everystore

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/tierlock/tierlock/adapters/gooselock"
	"github.com/tierlock/tierlock/internal/need"
	"github.com/tierlock/tierlock/internal/pgserver"
	"github.com/tierlock/tierlock/internal/pgserver/pgservertest"
	"github.com/tierlock/tierlock/internal/waittest"
)

const migrations = "/migrations"

// TestGooseProcess is a process that migrates a database, where a test starts it: GOOSE is the name and address of the store of the lock,
// and the address of the database.
func TestGooseProcess(t *testing.T) {
	names := strings.Split(os.Getenv("GOOSE"), "|")
	if len(names) != 4 {
		t.Skip("it is started by TestGooseMigratesOneProcessAtATime")
	}
	var locks connect
	for _, s := range stores {
		if s.name == names[0] {
			locks = s.connect
		}
	}
	registry := need.Get(locks(t, names[1]))(t)
	defer registry.Close()
	db := need.Get(sql.Open("pgx", pgserver.PlainURL(names[2])))(t)
	defer db.Close()
	step := func(version int64, then func()) *goose.Migration {
		return goose.NewGoMigration(version, &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
			fmt.Printf("runs %d\n", version)
			_, err := tx.ExecContext(ctx, fmt.Sprintf("CREATE TABLE step%d AS SELECT '%s' AS who", version, names[3]))
			then()
			return err
		}}, nil)
	}
	middle := func() {
		if names[3] == "the first" {
			select {} // until it is killed
		}
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, nil, goose.WithDisableGlobalRegistry(true),
		goose.WithGoMigrations(step(1, func() {}), step(2, middle), step(3, func() {})),
		goose.WithLocker(gooselock.New(registry.Mutex(migrations))))
	if err == nil {
		_, err = provider.Up(t.Context())
	}
	need.OK(t, err)
}

// The first process is killed in the middle of its second migration, for which the other one waits, and which it then runs.
func TestGooseMigratesOneProcessAtATime(t *testing.T) {
	for _, s := range stores {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			addr := s.start(t)
			database := pgservertest.Start(t, pgserver.Config{NoSync: true}).Addr()
			operator := need.Get(s.connect(t, addr))(t)
			defer operator.Close()
			queued := func(n int) func() bool {
				return func() bool {
					all, err := operator.Mutex(migrations).Contenders(t.Context())
					return err == nil && len(all) == n
				}
			}
			first := migrate(t, s.name, addr, database, "the first")
			waittest.Eventually(t, "the first is in the middle", func() bool { return strings.Contains(first.said(), "runs 2") })
			second := migrate(t, s.name, addr, database, "the second")
			waittest.Eventually(t, "the second waits", queued(2))
			need.That(t, "the second migrates beside the first", !strings.Contains(second.said(), "runs"))
			first.cmd.Process.Kill()
			need.WantErr(t, "the second", second.cmd.Wait(), nil)
			need.That(t, "the second begins anew: "+second.said(), !strings.Contains(second.said(), "runs 1"))
			db := need.Get(sql.Open("pgx", pgserver.PlainURL(database)))(t)
			defer db.Close()
			for version, want := range map[int]string{1: "the first", 2: "the second", 3: "the second"} {
				var who string
				need.WantErr(t, "SELECT", db.QueryRow(fmt.Sprintf("SELECT who FROM step%d", version)).Scan(&who), nil)
				need.Equal(t, fmt.Sprintf("step %d was done by", version), who, want)
			}
		})
	}
}

// A migration is a process that migrates, and what it has printed.
type migration struct {
	cmd *exec.Cmd

	mu  sync.Mutex // guards the field below
	out bytes.Buffer
}

func migrate(t *testing.T, store, addr, database, who string) *migration {
	t.Helper()
	m := &migration{cmd: exec.Command(os.Args[0], "-test.run", "^TestGooseProcess$", "-test.v")}
	m.cmd.Env = append(os.Environ(), "GOOSE="+strings.Join([]string{store, addr, database, who}, "|"))
	m.cmd.Stdout, m.cmd.Stderr = m, m
	need.OK(t, m.cmd.Start())
	t.Cleanup(func() {
		m.cmd.Process.Kill()
		m.cmd.Wait()
	})
	return m
}

func (m *migration) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.out.Write(p)
}

func (m *migration) said() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.out.String()
}
