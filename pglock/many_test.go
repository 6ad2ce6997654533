package pglock

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
)

// crowd inserts n contenders of a session, until the test ends. path is an SQL expression in $1, the number of the contender.
func crowd(t *testing.T, session, path, of string, n int) {
	t.Helper()
	t.Cleanup(func() { // other tests would otherwise remove these contenders when their session has expired
		outside(t).Exec(context.Background(), "DELETE FROM tierlock.contender WHERE session = $1", session)
	})
	exec(t, outside(t), `INSERT INTO tierlock.contender (path, token, id, session, reads, linger_ms)
		SELECT `+path+`, nextval('tierlock.token'), gen_random_uuid()::text, $2, false, 0 FROM generate_series(1, $3::int) i`, of, session, n)
}

// As long as a transaction is open anywhere in the database, deleted rows stay in the tables. They may slow down their own queue, but
// neither other queues nor the renewals.
func TestRowsThatAreNotRemovedYetDelayNobodyElse(t *testing.T) {
	p, path := start(t, tier.WithLeaseTTL(unhurried)), lockPath(t)
	keepDeadRows(t)
	id := p.session(t)
	renewal := "SELECT tierlock.beat('" + id + "', 60000)"
	entry := "SELECT tierlock.enter('" + path + "', gen_random_uuid()::text, '" + id + "', false, 0, NULL, false)"
	before, beforeEntry := blocks(t, renewal), blocks(t, entry)
	const dead = 50_000
	crowd(t, id, "$1 || '/crowd/' || i", path, dead)
	exec(t, outside(t), "DELETE FROM tierlock.contender WHERE path LIKE $1 || '/crowd/%'", path)
	exec(t, outside(t), "ANALYZE tierlock.contender") // as autovacuum does; to the planner, the table then looks small
	for _, c := range []struct {
		what          string
		before, after int
	}{{"a renewal", before, blocks(t, renewal)}, {"an entry in another queue", beforeEntry, blocks(t, entry)}} {
		need.AtMost(t, fmt.Sprintf("blocks that %s looks at with %d dead rows", c.what, dead), c.after, c.before+dead/100)
	}
}

// keepDeadRows opens a transaction that ends with the test. Until then, deleted rows stay in the tables.
func keepDeadRows(t *testing.T) {
	t.Helper()
	long := begun(t, outside(t))
	ask[any](t, long, "SELECT pg_current_xact_id()::text")
}

// blocks counts the blocks that a statement reads.
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

// From time to time, a queue records where reads can start. Commands then skip the rows that were deleted before that point.
func TestRowsOfAQueueThatAreNotRemovedYetAreNotPassedBy(t *testing.T) {
	p, path := start(t, tier.WithLeaseTTL(unhurried)), lockPath(t)
	keepDeadRows(t)
	id, head, me := p.session(t), newID(), newID()
	call := func(name, args string) string { return "SELECT tierlock." + name + "('" + path + "'" + args + ")" }
	enter := func(c string) string { return call("enter", ", '"+c+"', '"+id+"', false, 0, NULL, false") }
	leave := func(c string) string { return call("leave", ", '"+c+"'") }
	const dead = 2000
	crowd(t, id, "$1", path, dead)
	exec(t, outside(t), "DELETE FROM tierlock.contender WHERE path = $1", path)
	comeUntilNoted(t, path, id)
	tx := begun(t, outside(t))
	for _, c := range []struct{ what, sql string }{
		{"an entry into an empty queue", enter(head)}, {"an entry behind somebody", enter(me)},
		{"a look", "SELECT path FROM (" + strings.Replace(lookSQL, "$1", "'{"+path+"}'", 1) + ") c LIMIT 1"},
		{"the end of a wait", leave(me)}, {"a release", leave(head)},
	} {
		const entries = "SELECT pg_stat_get_xact_tuples_returned('tierlock.contender_pkey'::regclass)"
		before := ask[int](t, tx, entries)
		ask[any](t, tx, c.sql)
		need.AtMost(t, fmt.Sprintf("rows that %s looks at with %d dead ones", c.what, dead), ask[int](t, tx, entries)-before, dead/20)
	}
}

// comeUntilNoted makes contenders enter and leave until the server has recorded where reads of the queue can start.
func comeUntilNoted(t *testing.T, path, session string) {
	t.Helper()
	eventually(t, "a note of where the queue begins", func() bool {
		id := newID()
		entered(t, outside(t), path, id, session)
		exec(t, outside(t), "SELECT tierlock.leave($1, $2)", path, id)
		return ask[int](t, outside(t), "SELECT count(*) FROM tierlock.floor WHERE path = $1", path) == 1
	})
}

// The server records where reads of a queue start. No read may skip a contender that still exists. Another path may share the record.
// Therefore contenders enter and leave at that path, too.
func TestNobodyIsPassedBy(t *testing.T) {
	p, path := start(t, tier.WithLeaseTTL(unhurried)), lockPath(t)
	id, head := p.session(t), newID()
	entered(t, outside(t), path, head, id)
	seen := func() {
		t.Helper()
		queues, err := read(soon(t), outside(t), path)
		need.That(t, fmt.Sprintf("%v, or the next one is the first; %v", queues, err),
			err == nil && len(queues[path]) == 1 && !entered(t, outside(t), path, newID(), id))
		exec(t, outside(t), "DELETE FROM tierlock.contender WHERE path = $1 AND id <> $2", path, head)
	}
	comeUntilNoted(t, path, id)
	seen()
	comeUntilNoted(t, ask[string](t, outside(t), `SELECT other FROM (SELECT $1 || '/' || i AS other FROM generate_series(1, 100000) i) c
		WHERE tierlock.slot(other) = tierlock.slot($1) LIMIT 1`, path), id)
	seen()
}

// A process may hold permits of one semaphore from many acquisitions. Its heartbeats, and the acquisitions of others, then cost no more
// than with as many locks. A cost that grows with the square of the number would be many times higher.
func TestPortionsCostNoMoreThanAsManyLocks(t *testing.T) {
	p, path := start(t, tier.WithLeaseTTL(unhurried)), lockPath(t)
	id, s := p.session(t), must(t, p.at(t, path)).Store().(*store)
	const many = 4000
	crowd(t, id, "$1 || '/' || i", path, many)
	crowd(t, id, "$1", at(queue.Ref{Path: path, Permits: 1}).Path, many)
	exec(t, outside(t), "UPDATE tierlock.contender SET permits = $1, weight = 1 WHERE path LIKE '%permits' AND session = $2", 2*many, id)
	exec(t, outside(t), "ANALYZE tierlock.contender")
	refs := func(condition string) (all []queue.Ref) {
		sql := "SELECT path, id FROM tierlock.contender WHERE session = $1 AND path <> $2 AND path " + condition
		rows := need.Get(outside(t).Query(soon(t), sql, id, path))(t)
		return need.Get(pgx.CollectRows(rows, func(row pgx.CollectableRow) (r queue.Ref, err error) {
			return r, row.Scan(&r.Path, &r.ID)
		}))(t)
	}
	locks, portions := refs("NOT LIKE '%permits'"), refs("LIKE '%permits'")
	fastest := func(do func()) (best time.Duration) {
		for range 3 {
			begun := time.Now()
			do()
			if took := time.Since(begun); best == 0 || took < best {
				best = took
			}
		}
		return best
	}
	look := func(of []queue.Ref) time.Duration {
		return fastest(func() {
			need.OK(t, s.notifyConn.talk(soon(t), func(l *serverConn) error {
				views, err := s.look(soon(t), l, of...)
				need.That(t, "the first or the last contender does not have its lock", len(views) == many && views[0].Has && views[many-1].Has)
				return err
			}))
		})
	}
	ofLocks := look(locks)
	need.AtMost(t, "the look of a heartbeat at portions", look(portions), 3*ofLocks)
	need.AtMost(t, "a turn", fastest(func() {
		me := newID()
		ask[bool](t, outside(t), "SELECT first FROM tierlock.enter($1, $2, $3, false, 0, NULL, false, 1, $4)", portions[0].Path, me, id, 2*many)
		exec(t, outside(t), "SELECT tierlock.leave($1, $2)", portions[0].Path, me)
	}), 3*ofLocks)
}

// Each acquisition is one request. The server has already planned its statement, unless it is the first one of the connection.
func TestTurnIsOneRequest(t *testing.T) {
	t.Parallel()
	p := start(t, tier.WithLeaseTTL(unhurried))
	l := p.at(t, lockPath(t))
	mustRelease(t, must(t, l))
	var requests, planned atomic.Int64
	p.network.onRequest(func(r []byte) {
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

// The time of an acquisition depends on how many statements the server executes for it, also in functions and triggers.
func TestTurnTakesFewStatements(t *testing.T) {
	t.Parallel()
	var statements atomic.Int64
	pool := poolAt(t, database(t), func(c *pgxpool.Config) {
		c.ConnConfig.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
			if strings.HasPrefix(n.Message, "duration: ") {
				statements.Add(1)
			}
		}
		c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
		c.MaxConns = 1
	})
	exec(t, pool, Schema)
	session, a, b := opened(t, pool), newID(), newID()
	conn := need.Get(pool.Acquire(soon(t)))(t)
	need.OK(t, impose(soon(t), conn.Conn(), forTables(unhurried)))
	conn.Release()
	exec(t, pool, "LOAD 'auto_explain'; SET client_min_messages = log;"+
		"SET auto_explain.log_min_duration = 0; SET auto_explain.log_nested_statements = on")
	const enter = "SELECT tierlock.enter('/q', $1, $2, false, 0, $3, $4)"
	for _, c := range []struct {
		what string
		most int64
		sql  string
		args []any
	}{
		{"an acquisition", 7, enter, []any{a, session, nil, false}},
		{"a try of what is taken", 9, enter, []any{newID(), session, nil, true}},
		{"an entry behind somebody", 13, enter, []any{b, session, nil, false}},
		{"a requeue", 13, enter, []any{newID(), session, a, false}},
		{"a release", 6, "SELECT tierlock.leave('/q', $1)", []any{b}},
	} {
		statements.Store(0)
		exec(t, pool, c.sql, c.args...)
		need.Between(t, "statements of "+c.what, statements.Load(), 1, c.most)
	}
}

// A periodic read of the queues takes one round trip, for any number of contenders.
func TestLookIsOneRequest(t *testing.T) {
	t.Parallel()
	p := start(t, tier.WithLeaseTTL(unhurried))
	id, path := p.session(t), lockPath(t)
	s := must(t, p.at(t, path+"-2")).Store().(*store)
	crowd(t, id, "$1", path, 3)
	var refs []queue.Ref
	for _, c := range need.Get(read(soon(t), outside(t), path))(t)[path] {
		refs = append(refs, queue.Ref{Path: path, ID: c.ID, Token: c.Token})
	}
	s.Follow(refs[2]) // for a waiter, the read covers only the rows that show its place
	var requests atomic.Int64
	need.OK(t, s.notifyConn.talk(soon(t), func(l *serverConn) error {
		p.network.onRequest(func([]byte) { requests.Add(1) })
		defer p.network.onRequest(func([]byte) {})
		for _, of := range [][]queue.Ref{refs[2:], refs, {{Path: path, ID: "none"}}} {
			requests.Store(0)
			views, err := s.look(soon(t), l, of...)
			need.Equal(t, fmt.Sprintf("requests of a look at %d: %v, %v", len(of), views, err), requests.Load(), 1)
		}
		return nil
	}))
}

// A waiter reads only the rows that show its place. If each waiter read the whole queue at each heartbeat, the cost would grow with the
// square of their number.
func TestWaiterDoesNotReadTheWholeQueue(t *testing.T) {
	p, path := start(t, tier.WithLeaseTTL(unhurried)), lockPath(t)
	id, s := p.session(t), must(t, p.at(t, path+"-2")).Store().(*store)
	const many = 600
	crowd(t, id, "$1", path, many)
	exec(t, outside(t), "UPDATE tierlock.contender SET reads = hashtext(id) % 3 <> 0 WHERE path = $1", path)
	exec(t, outside(t), "ANALYZE tierlock.contender")
	whole := need.Get(read(soon(t), outside(t), path))(t)[path]
	places := queue.NewPlaces(whole)
	for i := 0; i < many; i += 1 + i/3 {
		c := whole[i]
		ref := queue.Ref{Path: path, ID: c.ID, Token: c.Token, Reads: c.Shared}
		s.Follow(ref)
		want := queue.View{ID: c.ID, Token: c.Token}
		places.Stand(&want)
		if want.Ahead > 0 { // the view counts only those of the 100 right ahead that block c
			near := slices.DeleteFunc(slices.Clone(whole[max(0, i-100):i]), func(p second.Contender) bool { return p.Shared && c.Shared })
			want.Ahead = max(1, len(near))
		}
		need.OK(t, s.notifyConn.talk(soon(t), func(l *serverConn) error {
			views, err := s.look(soon(t), l, ref)
			if err == nil {
				want.At = views[0].At
				need.Equal(t, fmt.Sprintf("how %d of the queue stands", i), views[0], want)
			}
			return err
		}))
		s.Unfollow(ref)
	}
	last := whole[many-1]
	conn := need.Get(pgx.Connect(soon(t), sharedURL(t)))(t)
	defer conn.Close(context.Background())
	need.OK(t, impose(soon(t), conn, forTables(unhurried)))
	tx := need.Get(conn.Begin(soon(t)))(t)
	looksAt := func(sql string, args ...any) int {
		const rows = "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relid = 'tierlock.contender'::regclass"
		before := ask[int](t, tx, rows)
		_, err := tx.Exec(soon(t), sql, args...)
		need.OK(t, err)
		return ask[int](t, tx, rows) - before
	}
	w := []any{[]string{path}, []int64{last.Token}, []bool{last.Shared}}
	need.AtMost(t, "rows that the last one looks at", looksAt(aroundSQL, w...)+looksAt(aheadSQL, w...), looksAt(lookSQL, []string{path})/3)
}
