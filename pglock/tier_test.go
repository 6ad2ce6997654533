package pglock

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/pgserver"
	"github.com/tierlock/tierlock/internal/test/tiertest"
	"github.com/tierlock/tierlock/tier"
)

func TestTier(t *testing.T) {
	e := childtest.StartEnsemble(t, pgserver.StartEnsemble, 3, pgserver.Config{NoSync: true, Synchronous: true})
	exec(t, migrated(t, pgserver.PlainURL(e.Addrs()...)), countWrites)
	tiertest.Run(t, func(t *testing.T, test func(*testing.T, tiertest.Harness)) {
		test(t, tables.harness(t, e))
	}).Record(t, "PostgreSQL", "../docs/promises/postgres.md")
}

func TestAdvisoryTier(t *testing.T) {
	e := childtest.StartEnsemble(t, pgserver.StartEnsemble, 3, pgserver.Config{NoSync: true, Synchronous: true})
	migrated(t, pgserver.PlainURL(e.Addrs()...))
	tiertest.Run(t, func(t *testing.T, test func(*testing.T, tiertest.Harness)) {
		test(t, advisoryHarness(t, e))
	}).Record(t, "PostgreSQL, advisory", "../docs/promises/postgres-advisory.md")
}

// countWrites is SQL that makes the server count the transactions that change a queue or a value.
const countWrites = `
	CREATE TABLE writes (transaction xid8 PRIMARY KEY);
	CREATE FUNCTION count_write() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.writes VALUES (pg_current_xact_id()) ON CONFLICT DO NOTHING;
		RETURN NULL;
	END $$;
	CREATE TRIGGER count AFTER INSERT OR UPDATE OR DELETE ON tierlock.contender FOR EACH ROW EXECUTE FUNCTION count_write();
	CREATE TRIGGER count AFTER INSERT OR UPDATE OR DELETE ON tierlock.value FOR EACH ROW EXECUTE FUNCTION count_write();`

// harness returns the harness with which the tier suite runs on a primary and its standbys. The primary acknowledges a write only when a
// standby has it, too.
func (f flavour) harness(t *testing.T, e *pgserver.Ensemble) tiertest.Harness {
	o := newOperator(t, e)
	left := func(path string) int { return o.look("SELECT count(*) FROM tierlock.contender WHERE path = $1", path) }
	return tiertest.Harness{
		Lease: 3 * time.Second,
		Dial: func(tb testing.TB, lease time.Duration) *tiertest.Process {
			return f.start(tb, o.url, tier.WithLeaseTTL(lease)).forSuite()
		},
		Left:        left,
		LeftPermits: func(path string) int { return left(at(queue.Ref{Path: path, Permits: 1}).Path) },
		Writes:      func() int64 { return o.do("SELECT count(*) FROM writes") },
		Remove: func(path string, i int) {
			o.remove(`WITH gone AS (DELETE FROM tierlock.contender WHERE path = $1 AND token =
				(SELECT token FROM tierlock.contender WHERE path = $1 ORDER BY token OFFSET $2 LIMIT 1) RETURNING 1)
				SELECT count(*) FROM gone`, path, i)
		},
		Freeze: func() (thaw func()) {
			o.check(e.Pause())
			return func() { o.check(e.Resume()) }
		},
		Failover: func() { o.check(e.Failover(t.Context())) },
		Forgets:  true,
		Restart:  func() { o.check(e.Restart(t.Context())) },
	}
}

// advisoryHarness returns the harness for advisory locks on the same servers. These locks exist only at the primary.
func advisoryHarness(t *testing.T, e *pgserver.Ensemble) tiertest.Harness {
	h, o := advisories.harness(t, e), newOperator(t, e)
	h.Writes = advisoryWrites.Load
	h.Unpromised = map[string]string{
		"contenders":     "the server draws the token when it grants the lock, so a waiter has no token",
		"share-troubled": "a lost message ends the connection, and the lock ends with its connection",
	}
	h.Left = func(path string) int {
		return o.look("SELECT count(DISTINCT pid) FROM pg_locks WHERE "+ofLock, advisoryKey(path))
	}
	h.Remove = func(path string, i int) {
		o.remove(`WITH queue AS (SELECT pid FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE `+ofLock+`
			ORDER BY granted DESC, CASE WHEN granted THEN split_part(application_name, ' ', 2)::bigint END, waitstart OFFSET $2 LIMIT 1)
			SELECT count(*) FROM queue WHERE pg_terminate_backend(pid)`, advisoryKey(path), i)
	}
	return h
}

const ofLock = "locktype = 'advisory' AND objsubid = 1 AND (classid::bigint << 32) | objid::bigint = $1"

// An operator reads the database without the library. It leaves no goroutine, because tests count goroutines.
type operator struct {
	t   *testing.T
	url string

	mu   sync.Mutex // guards the field below
	conn *pgx.Conn  // nil before the first query
}

func newOperator(t *testing.T, e *pgserver.Ensemble) *operator {
	o := &operator{t: t, url: pgserver.PlainURL(e.Addrs()...)}
	t.Cleanup(func() {
		if o.conn != nil {
			o.conn.Close(context.Background())
		}
	})
	return o
}

func (o *operator) check(err error) {
	if err != nil {
		o.t.Error(err)
	}
}

// look executes a query that returns a number. If no answer comes within a second, it returns a negative number, and its caller tries
// again.
func (o *operator) look(sql string, args ...any) int {
	n, err := o.ask(time.Second, sql, args...)
	if err != nil {
		return -1
	}
	return int(n)
}

func (o *operator) do(sql string, args ...any) int64 {
	n, err := o.ask(20*time.Second, sql, args...)
	o.check(err)
	return n
}

func (o *operator) remove(sql string, args ...any) {
	if o.do(sql, args...) == 0 {
		o.check(errors.New("no server answers"))
	}
}

func (o *operator) ask(within time.Duration, sql string, args ...any) (number int64, err error) {
	ctx, cancel := context.WithTimeout(o.t.Context(), within)
	defer cancel()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.conn == nil || o.conn.IsClosed() {
		if o.conn, err = pgx.Connect(ctx, o.url); err != nil {
			return 0, err
		}
	}
	if err = o.conn.QueryRow(ctx, sql, args...).Scan(&number); err != nil {
		o.conn.Close(ctx) // the server may not be the primary any more
	}
	return number, err
}
