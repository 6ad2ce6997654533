package pglock

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// crowd inserts contenders of the session of p, each in a queue of its own below path.
func (p *process) crowd(t *testing.T, path string, n int) {
	t.Helper()
	exec(t, `INSERT INTO tierlock.contender (path, token, id, session, reads, linger_ms)
		SELECT $1 || '/' || i, nextval('tierlock.token'), gen_random_uuid(), $2, false, 0 FROM generate_series(1, $3::int) i`,
		path, p.session(t), n)
}

// A server has room for some thousand locks. A process that takes them all at its end would have others fail.
func TestEndOfAProcessWithManyLocksTakesFewAtATime(t *testing.T) {
	p := start(t, WithLeaseTTL(time.Minute))
	id := p.session(t)
	p.crowd(t, lockPath(t), 250)
	tx, err := outside(t).Begin(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	var locks int
	if _, err = tx.Exec(soon(t), "SELECT tierlock.finish($1)", id); err == nil {
		err = tx.QueryRow(soon(t), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()").Scan(&locks)
	}
	tx.Rollback(soon(t))
	if err != nil || locks == 0 || locks > 100 {
		t.Errorf("%d at a time, want 1 to 100; %v", locks, err)
	}
	p.end()
	var n int
	if err := outside(t).QueryRow(soon(t), `SELECT (SELECT count(*) FROM tierlock.contender WHERE session = $1) +
		(SELECT count(*) FROM tierlock.session WHERE id = $1)`, id).Scan(&n); err != nil || n > 0 {
		t.Errorf("%d rows are left, %v", n, err)
	}
}

// While a transaction is open anywhere in the database, rows that are deleted are not removed. That concerns
// their queue, and neither the others nor the lease.
func TestRowsThatAreNotRemovedYetDelayNobodyElse(t *testing.T) {
	p, path := start(t, WithLeaseTTL(time.Minute)), lockPath(t)
	keepDeadRows(t)
	blocks := func(sql string) int { return blocks(t, sql) }
	id := p.session(t)
	renewal := "SELECT tierlock.beat('" + id + "', 60000)"
	entry := "SELECT tierlock.enter('" + path + "', gen_random_uuid(), '" + id + "', false, 0, NULL, false)"
	before, beforeEntry := blocks(renewal), blocks(entry)
	const dead = 50_000
	p.crowd(t, path+"/crowd", dead)
	exec(t, "DELETE FROM tierlock.contender WHERE path LIKE $1 || '/crowd/%'", path)
	exec(t, "ANALYZE tierlock.contender") // as autovacuum does: the table looks small
	for _, c := range []struct {
		what          string
		before, after int
	}{{"a renewal", before, blocks(renewal)}, {"an entry in another queue", beforeEntry, blocks(entry)}} {
		if c.after > c.before+dead/100 {
			t.Errorf("%s looks at %d blocks with %d dead rows, %d before", c.what, c.after, dead, c.before)
		}
	}
}

// keepDeadRows has a transaction that is open until the end of the test, and may look at them.
func keepDeadRows(t *testing.T) {
	t.Helper()
	long, err := outside(t).BeginTx(soon(t), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { long.Rollback(context.Background()) })
	if _, err := long.Exec(soon(t), "SELECT pg_current_xact_id()"); err != nil {
		t.Fatal(err)
	}
}

// blocks is how many a statement looks at.
func blocks(t *testing.T, sql string) int {
	t.Helper()
	var text string
	if err := outside(t).QueryRow(soon(t), "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+sql, pgx.QueryExecModeSimpleProtocol).Scan(&text); err != nil {
		t.Fatal(err)
	}
	var explained []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	if err := json.Unmarshal([]byte(text), &explained); err != nil {
		t.Fatal(err)
	}
	return explained[0].Plan.Hit + explained[0].Plan.Read
}

// Whoever comes or goes passes by them once.
func TestRowsOfAQueueThatAreNotRemovedYetArePassedByOnce(t *testing.T) {
	p, path := start(t, WithLeaseTTL(time.Minute)), lockPath(t)
	keepDeadRows(t)
	id, head, me := p.session(t), newID(), newID()
	enter := func(c string) string {
		return "SELECT tierlock.enter('" + path + "', '" + c + "', '" + id + "', false, 0, NULL, false)"
	}
	leave := func(c string) string { return "SELECT tierlock.leave('" + path + "', '" + c + "')" }
	const dead = 2000
	exec(t, `INSERT INTO tierlock.contender (path, token, id, session, reads, linger_ms)
		SELECT $1, nextval('tierlock.token'), gen_random_uuid(), $2, false, 0 FROM generate_series(1, $3::int)`, path, id, dead)
	exec(t, "DELETE FROM tierlock.contender WHERE path = $1", path)
	tx := begun(t, outside(t))
	for _, call := range []struct{ what, sql string }{
		{"an entry into an empty queue", enter(head)}, {"an entry behind somebody", enter(me)}, {"the end of a wait", leave(me)},
		{"a release", leave(head)}, {"a settlement", "SELECT tierlock.settle('" + path + "')"},
	} {
		const entries = "SELECT pg_stat_get_xact_tuples_returned('tierlock.contender_pkey'::regclass)"
		before := mustExec(t, tx, entries).(int64)
		mustExec(t, tx, call.sql+"::text")
		if n := mustExec(t, tx, entries).(int64) - before; n < dead || n > dead*3/2 {
			t.Errorf("%s looks at %d rows, %d of which are dead", call.what, n, dead)
		}
	}
}

// It would take its contenders with it, and nobody would tell those behind them.
func TestSessionThatIsOverStaysWithItsContenders(t *testing.T) {
	t.Parallel()
	pool := database(t)
	if err := Migrate(soon(t), pool); err != nil {
		t.Fatal(err)
	}
	id := opened(t, pool)
	mustExec(t, pool, "SELECT number FROM tierlock.enter('/x', gen_random_uuid(), $1, false, 0, NULL, false)", id)
	if _, err := pool.Exec(soon(t), "UPDATE tierlock.session SET expires = expires - interval '1 hour' WHERE id = $1", id); err != nil {
		t.Fatal(err)
	}
	if stale := mustExec(t, pool, "SELECT stale[1] FROM tierlock.beat($1, 60000)", opened(t, pool)); stale != "/x" {
		t.Errorf("the queue with one whose session is over is %v, want /x", stale)
	}
	if n := mustExec(t, pool, "SELECT count(*) FROM tierlock.contender"); n != int64(1) {
		t.Errorf("%v contenders, want the one that is to be settled", n)
	}
}
