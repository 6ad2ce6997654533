package mysqllock

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/mysqlserver"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/tiertest"
)

func TestTier(t *testing.T) {
	s := childtest.Start(t, mysqlserver.Start, mysqlserver.Config{NoSync: true})
	root := need.Get(migrated(soon(t), s.Addr()))(t)
	defer root.Close()
	for _, sql := range countWrites() {
		need.Get(root.ExecContext(soon(t), sql))(t)
	}
	awaitSecond(t, root)
	tiertest.Run(t, func(t *testing.T, test func(*testing.T, tiertest.Harness)) {
		test(t, harness(t, s, root))
	}).Record(t, "MySQL", "../docs/promises/mysql.md")
}

// countWrites returns SQL that makes the server record each transaction that changes a queue or a value. A record identifies the
// transaction: by the start of the server, the number of the connection, and a number of the transaction among those of the connection.
func countWrites() []string {
	sql := []string{"CREATE TABLE writes (life VARBINARY(255), connection BIGINT, transaction BIGINT, " +
		"PRIMARY KEY (life, connection, transaction)) ENGINE = InnoDB"}
	transaction := "VARIABLE_VALUE FROM information_schema.SESSION_STATUS WHERE VARIABLE_NAME = 'Com_commit'"
	if mysqlserver.IsMySQL() { // its status tables leave the counters of statements out
		transaction = "EVENT_ID FROM performance_schema.events_transactions_current WHERE THREAD_ID = PS_CURRENT_THREAD_ID()"
	}
	for _, table := range []string{"tierlock_contender", "tierlock_value"} {
		for _, what := range []string{"INSERT", "UPDATE", "DELETE"} {
			sql = append(sql, "CREATE TRIGGER "+what+"_"+table+" AFTER "+what+" ON "+table+" FOR EACH ROW INSERT IGNORE INTO writes "+
				"SELECT COALESCE(@tierlock_life, ''), CONNECTION_ID(), "+transaction)
		}
	}
	return sql
}

func harness(t *testing.T, s *mysqlserver.Server, root *sql.DB) tiertest.Harness {
	check := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	ask := func(within time.Duration, sql string, args ...any) (n int64, err error) {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		return n, root.QueryRowContext(ctx, sql, args...).Scan(&n)
	}
	left := func(path string) int {
		n, err := ask(time.Second, "SELECT COUNT(*) FROM tierlock_contender WHERE path = ?", path)
		if err != nil {
			return -1
		}
		return int(n)
	}
	return tiertest.Harness{
		Lease: 3 * time.Second,
		Dial: func(tb testing.TB, lease time.Duration) *tiertest.Process {
			return begin(tb, s.Addr(), lease).forSuite()
		},
		Left:        left,
		LeftPermits: func(path string) int { return left(at(queue.Ref{Path: path, Permits: 1}).Path) },
		Writes: func() int64 {
			n, err := ask(20*time.Second, "SELECT COUNT(*) FROM writes")
			check(err)
			return n
		},
		Remove: func(path string, i int) {
			token, err := ask(20*time.Second, "SELECT token FROM tierlock_contender WHERE path = ? ORDER BY token LIMIT 1 OFFSET ?", path, i)
			if err == nil {
				var gone sql.Result
				if gone, err = root.ExecContext(soon(t), "DELETE FROM tierlock_contender WHERE path = ? AND token = ?", path, token); err == nil {
					if n, _ := gone.RowsAffected(); n == 0 {
						err = errors.New("no server answers")
					}
				}
			}
			check(err)
		},
		Freeze: func() (thaw func()) {
			check(s.Pause())
			return func() { check(s.Resume()) }
		},
		Forgets: true,
		Restart: func() { check(s.Restart(t.Context())) },
	}
}
