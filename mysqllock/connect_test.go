package mysqllock

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/logtest"
	"github.com/tierlock/tierlock/internal/test/mysqlserver"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/waittest"
	"github.com/tierlock/tierlock/tier"
)

// poolAt returns a pool that is closed at the end of the test.
func poolAt(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db := need.Get(sql.Open("mysql", dsn))(t)
	t.Cleanup(func() { db.Close() })
	return db
}

// alone starts a server with these settings for one test. It also returns a pool of the user root.
func alone(t *testing.T, settings ...string) (*mysqlserver.Server, *sql.DB) {
	t.Helper()
	s := childtest.Start(t, mysqlserver.Start, mysqlserver.Config{NoSync: true, Settings: settings})
	return s, poolAt(t, mysqlserver.RootDSN(s.Addr()))
}

func run(t *testing.T, db *sql.DB, all ...string) {
	t.Helper()
	for _, sql := range all {
		need.Get(db.ExecContext(soon(t), sql))(t)
	}
}

func ask[V any](t *testing.T, db *sql.DB, sql string, args ...any) (v V) {
	t.Helper()
	need.OK(t, db.QueryRowContext(soon(t), sql, args...).Scan(&v))
	return v
}

func TestBadOptionsAreNamed(t *testing.T) {
	t.Parallel()
	db := poolAt(t, "nobody@tcp(127.0.0.1:1)/none")
	waittest.Refused(t, func(o tier.RegistryOption) error {
		_, err := New(t.Context(), db, tier.WithLazyStart(), o)
		return err
	}, map[string]tier.RegistryOption{
		"want a multiple of 1ms":             tier.WithLeaseTTL(time.Second + time.Nanosecond),
		"want 1s to":                         tier.WithLeaseTTL(1 << 62),
		"label of 257 bytes":                 tier.WithLabel(strings.Repeat("x", 257)),
		"option of type <nil>":               nil,
		"option of type mysqllock.elsewhere": elsewhere{},
	})
	need.Has(t, "without a pool", fmt.Sprint(need.ErrOf(New(t.Context(), nil))), "nil pool")
	db.SetMaxOpenConns(minPool - 1)
	need.Has(t, "a small pool", fmt.Sprint(need.ErrOf(New(t.Context(), db))), "set a limit of at least 8 with SetMaxOpenConns")
}

// elsewhere is an option of another package.
type elsewhere struct{ tier.RegistryOption }

func TestOtherServersAreRefusedByName(t *testing.T) {
	t.Parallel()
	for version, comment := range map[string]string{
		"8.0.11-TiDB-v8.5.1": "TiDB Server (Apache License 2.0)", "8.0.30-Vitess": "Version: 21.0", "5.7.44-log": "MySQL Community Server",
		"5.5.5-10.5.29-MariaDB": "mariadb.org binary distribution", "5.7.32": "MemSQL source distribution", "eight": "MySQL",
	} {
		need.WantErr(t, version, need.ErrOf(checkServer(version, comment)), errServer)
	}
	for version, comment := range map[string]string{
		"8.0.36": "MySQL Community Server - GPL", "8.4.3-3": "Percona Server (GPL)", "9.1.0": "MySQL Community Server - GPL",
		"10.6.21-MariaDB-log": "MariaDB Server", "5.5.5-10.11.11-MariaDB-0+deb12u1": "Debian 12",
		"8.0.mysql_aurora.3.08.0": "Source distribution",
	} {
		need.WantErr(t, version, need.ErrOf(checkServer(version, comment)), nil)
	}
}

// The tests run no server with several writers. They simulate one with the settings that such a server reports.
func TestServersWithSeveralWritersAreRefused(t *testing.T) {
	t.Parallel()
	for mention, is := range map[string]map[string]string{
		"Galera":            {"wsrep_on": "ON"},
		"several primaries": {"group_replication_group_name": "x", "group_replication_single_primary_mode": "OFF"},
		"binlog_format":     {"log_bin": "ON", "binlog_format": "STATEMENT"},
	} {
		err := checkSettings(is)
		need.WantErr(t, mention, err, errServer)
		need.WantMention(t, err, mention)
	}
	for _, is := range []map[string]string{
		{},
		{"wsrep_on": "OFF", "log_bin": "ON", "binlog_format": "MIXED"},
		{"group_replication_group_name": "x", "group_replication_single_primary_mode": "ON", "log_bin": "ON", "binlog_format": "ROW"},
		{"group_replication_group_name": "", "group_replication_single_primary_mode": "OFF", "log_bin": "OFF", "binlog_format": "STATEMENT"},
	} {
		wantErr(t, checkSettings(is), nil)
	}
}

func TestServerWithSettingsThatLocksCannotHaveIsRefused(t *testing.T) {
	t.Parallel()
	need.Each(t, map[string]struct{ setting, mention string }{
		"binary log": {"--log-bin", "binlog_format"},
		"clock":      {"--sysdate-is-now", "sysdate-is-now"},
	}, func(t *testing.T, c struct{ setting, mention string }) {
		t.Parallel()
		settings := []string{c.setting}
		if c.setting == "--log-bin" {
			settings = append(settings, "--binlog-format=STATEMENT")
		}
		s, _ := alone(t, settings...)
		db := poolAt(t, mysqlserver.DSN(s.Addr()))
		for what, err := range map[string]error{"New": need.ErrOf(New(soon(t), db)), "Migrate": Migrate(soon(t), db)} {
			need.WantErr(t, what, err, errServer)
			need.WantMention(t, err, c.mention)
		}
	})
}

func TestServerWithABinaryLogInMixedFormatWorks(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"MIXED", "ROW"} {
		s, _ := alone(t, "--log-bin", "--binlog-format="+format)
		db := poolAt(t, mysqlserver.DSN(s.Addr()))
		need.OK(t, Migrate(soon(t), db))
		locks := need.Get(New(soon(t), db))(t)
		defer locks.Close()
		hold := waittest.Hold(t, locks)
		need.OK(t, Tx(soon(t), hold, func(tx *sql.Tx) error { return nil }))
		waittest.Release(t, hold)
	}
}

// A replica is read-only until it takes over. Until then no process can open a session there, and afterwards every process can.
func TestReadOnlyServerServesOnceItTakesWrites(t *testing.T) {
	t.Parallel()
	s, root := alone(t)
	db := poolAt(t, mysqlserver.DSN(s.Addr()))
	need.OK(t, Migrate(soon(t), db))
	run(t, root, "SET GLOBAL read_only = ON")
	for who, db := range map[string]*sql.DB{"a user": db, "one who may write": root} {
		_, err := New(need.Within(t, time.Second), db)
		need.WantErr(t, who, err, context.DeadlineExceeded)
		need.WantMention(t, err, "read-only")
	}
	ready := make(chan error)
	go func() {
		locks, err := New(soon(t), db)
		if err == nil {
			locks.Close()
		}
		ready <- err
	}()
	run(t, root, "SET GLOBAL read_only = OFF")
	need.OK(t, <-ready)
}

// The user, the URL and the server may have any settings. They apply to statements of the program, and not to those of this package.
func TestSettingsOfTheUserChangeNothing(t *testing.T) {
	t.Parallel()
	limit := "--max-statement-time=0.2"
	if mysqlserver.IsMySQL() {
		limit = "--max-execution-time=200"
	}
	s, _ := alone(t, "--wait-timeout=1", "--interactive-timeout=1", "--innodb-lock-wait-timeout=1", "--character-set-server=latin1",
		"--transaction-isolation=SERIALIZABLE", "--autocommit=0", limit, "--default-time-zone=+05:45")
	need.OK(t, Migrate(soon(t), poolAt(t, mysqlserver.DSN(s.Addr()))))
	settings := url.Values{
		"sql_mode": {"'ANSI,STRICT_ALL_TABLES'"}, "time_zone": {"'-08:00'"}, "parseTime": {"true"}, "collation": {"latin1_swedish_ci"},
	}
	var holds []*tier.Hold
	for _, path := range []string{"/é", "/É", "/e", "/E", "/e ", "/日本", "/🔒"} { // each path is a different lock
		db := poolAt(t, mysqlserver.DSN(s.Addr())+"?"+settings.Encode())
		locks := need.Get(New(soon(t), db, tier.WithLeaseTTL(unhurried)))(t)
		defer locks.Close()
		holds = append(holds, need.Get(locks.Mutex(path).Acquire(soon(t)))(t))
		queue := need.Get(locks.Mutex(path).Contenders(soon(t)))(t)
		need.That(t, fmt.Sprintf("%+v", queue), len(queue) == 1 && time.Since(queue[0].Since).Abs() < time.Minute)
	}
	time.Sleep(1500 * time.Millisecond) // with the user's settings, the server would have closed idle connections by now
	for _, hold := range holds {
		waittest.Release(t, hold)
	}
}

// If a right is missing, New and the registry immediately return an error that names the right.
func TestRightsThatAreMissingAreNamed(t *testing.T) {
	t.Parallel()
	s, root := alone(t)
	dsn := func(user, database string) string { return user + "@tcp(" + s.Addr() + ")/" + database }
	as := func(user, database string) error {
		locks, err := New(soon(t), poolAt(t, dsn(user, database)))
		if err == nil {
			locks.Close()
		}
		return err
	}
	wantErr(t, as("plain", "plain"), errSchema)
	need.WantMention(t, as("plain", "plain"), "database plain has none", "run mysqllock.Migrate")
	need.WantMention(t, as("plain", ""), "no database")
	run(t, root, "CREATE USER poor", "GRANT SELECT ON plain.* TO poor")
	need.WantMention(t, Migrate(soon(t), poolAt(t, dsn("poor", "plain"))), "denied")
	need.OK(t, Migrate(soon(t), poolAt(t, mysqlserver.DSN(s.Addr()))))
	all := []string{"SELECT", "INSERT", "UPDATE", "DELETE", "EXECUTE"}
	for i, right := range all {
		user := "without_" + strings.ToLower(right)
		others := append(append([]string(nil), all[:i]...), all[i+1:]...)
		run(t, root, "CREATE USER "+user, "GRANT "+strings.Join(others, ", ")+" ON plain.* TO "+user)
		err := as(user, "plain")
		need.WantErr(t, user, err, errRights)
		need.That(t, err.Error(), strings.Contains(strings.ToUpper(err.Error()), right+" COMMAND DENIED"))
	}
	run(t, root, "CREATE USER locker", "GRANT "+strings.Join(all, ", ")+" ON plain.* TO locker")
	wantErr(t, as("locker", "plain"), nil)
	need.WantMention(t, as("stranger", "plain"), "Access denied")
}

// A process cannot wake the connections of another user. A waiter notices that it was not woken, logs a warning, and polls from then on.
func TestWaiterThatNobodyMayWakeAsksForNews(t *testing.T) {
	t.Parallel()
	s, root := alone(t)
	need.OK(t, Migrate(soon(t), poolAt(t, mysqlserver.DSN(s.Addr()))))
	run(t, root, "CREATE USER other", "GRANT ALL ON plain.* TO other")
	here := need.Get(New(soon(t), poolAt(t, mysqlserver.DSN(s.Addr())), tier.WithLeaseTTL(unhurried)))(t)
	log, logger := logtest.New(slog.LevelWarn)
	there := need.Get(New(soon(t), poolAt(t, "other@tcp("+s.Addr()+")/plain"), tier.WithLeaseTTL(unhurried), tier.WithLogger(logger)))(t)
	defer here.Close()
	defer there.Close()
	transfer := func() time.Duration {
		hold := need.Get(here.Mutex("/x", tier.WithStrictOrder()).Acquire(soon(t)))(t)
		got := make(chan error)
		go func() {
			next, err := there.Mutex("/x", tier.WithStrictOrder()).Acquire(soon(t))
			if err == nil {
				err = next.Release()
			}
			got <- err
		}()
		waittest.Eventually(t, "one that waits", func() bool { return ask[int](t, root, "SELECT COUNT(*) FROM tierlock_contender") == 2 })
		begun := time.Now()
		waittest.Release(t, hold)
		need.OK(t, <-got)
		return time.Since(begun)
	}
	waittest.Eventually(t, "a warning", func() bool { // a change that arrives between two waits of the listener does not count
		transfer()
		return len(log.Lines(slog.LevelWarn, "other processes cannot wake this process")) == 1
	})
	need.AtMost(t, "the fastest of three transfers", min(transfer(), transfer(), transfer()), longestWait/2)
}
