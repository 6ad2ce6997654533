package pglock

import (
	"encoding/json"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tierlock/tierlock/internal/need"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
)

// crowd inserts contenders of a session, the i-th at a path that is an expression of $1.
func crowd(t *testing.T, session, path, of string, n int) {
	t.Helper()
	exec(t, outside(t), `INSERT INTO tierlock.contender (path, token, id, session, reads, linger_ms)
		SELECT `+path+`, nextval('tierlock.token'), gen_random_uuid(), $2, false, 0 FROM generate_series(1, $3::int) i`, of, session, n)
}

// While a transaction is open anywhere in the database, rows that are deleted are not removed. That concerns
// their queue, and neither the others nor the lease.
func TestRowsThatAreNotRemovedYetDelayNobodyElse(t *testing.T) {
	p, path := start(t, WithLeaseTTL(unhurried)), lockPath(t)
	keepDeadRows(t)
	id := p.session(t)
	renewal := "SELECT tierlock.beat('" + id + "', 60000)"
	entry := "SELECT tierlock.enter('" + path + "', gen_random_uuid(), '" + id + "', false, 0, NULL, false)"
	before, beforeEntry := blocks(t, renewal), blocks(t, entry)
	const dead = 50_000
	crowd(t, id, "$1 || '/crowd/' || i", path, dead)
	exec(t, outside(t), "DELETE FROM tierlock.contender WHERE path LIKE $1 || '/crowd/%'", path)
	exec(t, outside(t), "ANALYZE tierlock.contender") // as autovacuum does: the table looks small
	for _, c := range []struct {
		what          string
		before, after int
	}{{"a renewal", before, blocks(t, renewal)}, {"an entry in another queue", beforeEntry, blocks(t, entry)}} {
		if c.after > c.before+dead/100 {
			t.Errorf("%s looks at %d blocks with %d dead rows, %d before", c.what, c.after, dead, c.before)
		}
	}
}

// keepDeadRows has a transaction that is open until the end of the test.
func keepDeadRows(t *testing.T) {
	t.Helper()
	long := begun(t, outside(t))
	ask[any](t, long, "SELECT pg_current_xact_id()::text")
}

// blocks is how many a statement looks at.
func blocks(t *testing.T, sql string) int {
	t.Helper()
	text := ask[string](t, outside(t), "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+sql, pgx.QueryExecModeSimpleProtocol)
	var explained []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	wantErr(t, json.Unmarshal([]byte(text), &explained), nil)
	return explained[0].Plan.Hit + explained[0].Plan.Read
}

// Whoever comes or goes passes by them once.
func TestRowsOfAQueueThatAreNotRemovedYetArePassedByOnce(t *testing.T) {
	p, path := start(t, WithLeaseTTL(unhurried)), lockPath(t)
	keepDeadRows(t)
	id, head, me := p.session(t), newID(), newID()
	enter := func(c string) string {
		return "SELECT tierlock.enter('" + path + "', '" + c + "', '" + id + "', false, 0, NULL, false)"
	}
	leave := func(c string) string { return "SELECT tierlock.leave('" + path + "', '" + c + "')" }
	const dead = 2000
	crowd(t, id, "$1", path, dead)
	exec(t, outside(t), "DELETE FROM tierlock.contender WHERE path = $1", path)
	tx := begun(t, outside(t))
	for _, call := range []struct{ what, sql string }{
		{"an entry into an empty queue", enter(head)}, {"an entry behind somebody", enter(me)}, {"the end of a wait", leave(me)},
		{"a release", leave(head)}, {"a settlement", "SELECT tierlock.settle('" + path + "')"},
	} {
		const entries = "SELECT pg_stat_get_xact_tuples_returned('tierlock.contender_pkey'::regclass)"
		before := ask[int](t, tx, entries)
		ask[any](t, tx, call.sql+"::text")
		if n := ask[int](t, tx, entries) - before; n < dead || n > dead*3/2 {
			t.Errorf("%s looks at %d rows, %d of which are dead", call.what, n, dead)
		}
	}
}

// Each is one request, planned before, but for the first on a connection.
func TestTurnIsOneRequest(t *testing.T) {
	t.Parallel()
	p := start(t, WithLeaseTTL(unhurried))
	l := p.at(t, lockPath(t))
	mustRelease(t, must(t, l))
	var requests, planned atomic.Int64
	p.line.onRequest(func(r []byte) {
		requests.Add(1)
		if r[0] == 'P' {
			planned.Add(1)
		}
	})
	var held *queue.Contender
	for _, c := range []struct {
		what string
		do   func()
	}{
		{"an acquisition", func() { held = must(t, l) }},
		{"a try of what is taken", func() { wantErr(t, need.ErrOf(l.TryAcquire(soon(t))), second.ErrLocked) }},
		{"a requeue", func() { held = need.Get(l.Requeue(soon(t), held))(t).(*queue.Contender) }},
		{"a release", func() { mustRelease(t, held) }},
	} {
		requests.Store(0)
		c.do()
		need.Equal(t, "requests of "+c.what, requests.Load(), 1)
	}
	need.Equal(t, "statements that were planned", planned.Load(), 0)
}
