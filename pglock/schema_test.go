package pglock

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tierlock/tierlock/internal/pgserver"
	"github.com/tierlock/tierlock/internal/pgserver/pgservertest"
)

// database makes an empty database at the shared server, for a superuser.
func database(t *testing.T) *pgxpool.Pool {
	t.Helper()
	url := pgserver.URL(server(t).Addr())
	name := "db_" + strings.ReplaceAll(newID(), "-", "")
	admin := poolAt(t, url, nil)
	defer admin.Close()
	if _, err := admin.Exec(soon(t), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	pool := poolAt(t, strings.Replace(url, "/postgres?", "/"+name+"?", 1), nil)
	t.Cleanup(pool.Close)
	return pool
}

func mustExec(t *testing.T, q interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, sql string, args ...any) (result any) {
	t.Helper()
	if err := q.QueryRow(soon(t), sql, args...).Scan(&result); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return result
}

func begun(t *testing.T, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback(context.Background()) })
	return tx
}

// opened returns a session that lasts for a minute.
func opened(t *testing.T, pool *pgxpool.Pool) (id string) {
	t.Helper()
	id = newID()
	mustExec(t, pool, "SELECT tierlock.open($1, 60000, 'host', 1, '')::text", id)
	return id
}

const enterFirst = "SELECT first FROM tierlock.enter('/q', $1, $2, false, 0, NULL, false)"

// Two processes enter one queue, and the transaction of the first is slow to commit. Without the lock of
// the queue both are first.
func TestNumbersAreDrawnUnderTheLockOfTheQueue(t *testing.T) {
	t.Parallel()
	const lock = "PERFORM pg_advisory_xact_lock(tierlock.key(queue));"
	if !strings.Contains(Schema, lock) {
		t.Fatal("the schema takes its lock in another way")
	}
	for _, schema := range []string{Schema, strings.Replace(Schema, lock, "", 1)} {
		t.Run("", func(t *testing.T) {
			owners := 0
			pool := database(t)
			if _, err := pool.Exec(soon(t), schema); err != nil {
				t.Fatal(err)
			}
			mine, theirs := opened(t, pool), opened(t, pool)
			slow := begun(t, pool)
			if mustExec(t, slow, enterFirst, newID(), mine) == true {
				owners++
			}
			first := make(chan bool)
			answer := first
			go func() {
				var is bool
				pool.QueryRow(soon(t), enterFirst, newID(), theirs).Scan(&is)
				answer <- is
			}()
			var is bool
			eventually(t, "the second is answered, or waits", func() bool {
				select {
				case is = <-first:
					first = nil
					return true
				default:
					return mustExec(t, pool, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())") == int64(1)
				}
			})
			slow.Commit(soon(t))
			if first != nil {
				is = <-first
			}
			if is {
				owners++
			}
			if want := map[bool]int{true: 1, false: 2}[schema == Schema]; owners != want {
				t.Errorf("%d owners, want %d", owners, want)
			}
		})
	}
}

// A renewal that has to wait for one who has found the session over comes too late, though it came before.
func TestSessionThatWasFoundOverIsNotRenewed(t *testing.T) {
	t.Parallel()
	pool := outside(t)
	id := opened(t, pool)
	finder := begun(t, pool)
	if _, err := finder.Exec(soon(t), "SELECT FROM tierlock.session WHERE id = $1 FOR SHARE", id); err != nil {
		t.Fatal(err)
	}
	exec(t, "SELECT 1") // another connection is open
	renewed := make(chan bool)
	short := newID()
	mustExec(t, pool, "SELECT tierlock.open($1, 400, 'host', 1, '')::text", short)
	if _, err := finder.Exec(soon(t), "SELECT FROM tierlock.session WHERE id = $1 FOR SHARE", short); err != nil {
		t.Fatal(err)
	}
	go func() {
		var alive bool
		pool.QueryRow(soon(t), "SELECT alive FROM tierlock.beat($1, 60000)", short).Scan(&alive)
		renewed <- alive
	}()
	time.Sleep(600 * time.Millisecond) // it is over
	finder.Rollback(soon(t))
	if <-renewed {
		t.Error("renewed")
	}
	if mustExec(t, pool, "SELECT alive FROM tierlock.beat($1, 60000)", id) != true {
		t.Error("one that is not over was not renewed")
	}
}

// A renewal has come in time, and is slow to commit. Who finds the session over meanwhile waits for it.
func TestRenewalUnderWayCounts(t *testing.T) {
	t.Parallel()
	pool := outside(t)
	id, session := newID(), newID()
	mustExec(t, pool, "SELECT tierlock.open($1, 400, 'host', 1, '')::text", session)
	mustExec(t, pool, "SELECT first FROM tierlock.enter($1, $2, $3, false, 0, NULL, false)", lockPath(t), id, session)
	renewal := begun(t, pool)
	if mustExec(t, renewal, "SELECT alive FROM tierlock.beat($1, 60000)", session) != true {
		t.Fatal("not renewed")
	}
	time.Sleep(600 * time.Millisecond)
	settled := make(chan error)
	go func() {
		_, err := pool.Exec(soon(t), "SELECT tierlock.settle($1)", lockPath(t))
		settled <- err
	}()
	time.Sleep(100 * time.Millisecond)
	renewal.Commit(soon(t))
	if err := <-settled; err != nil || len(left(t, lockPath(t))) != 1 {
		t.Errorf("%v, or the contender was deleted", err)
	}
	mustExec(t, pool, "SELECT tierlock.finish($1)::text", session)
}

// A request whose wait for the standby was given up has taken effect at the primary. Who repeats it is not
// answered before the standby has it, too.
func TestRepeatedRequestWaitsForTheStandby(t *testing.T) {
	t.Parallel()
	e := pgservertest.StartEnsemble(t, 2, pgserver.Config{NoSync: true, Synchronous: true})
	primary, err := e.Leader(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	pool := poolAt(t, pgserver.PlainURL(primary.Addr()), nil)
	defer pool.Close()
	if err := Migrate(soon(t), pool); err != nil {
		t.Fatal(err)
	}
	session, id := opened(t, pool), newID()
	e.Isolate(primary)
	enter := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		var first bool
		return pool.QueryRow(ctx, enterFirst, id, session).Scan(&first)
	}
	wantErr(t, enter(), context.DeadlineExceeded)
	eventually(t, "the contender at the primary", func() bool {
		return mustExec(t, pool, "SELECT count(*) FROM tierlock.contender") == int64(1)
	})
	wantErr(t, enter(), context.DeadlineExceeded)
	e.Heal()
	eventually(t, "an answer", func() bool { return enter() == nil })
}

// A transaction that writes, or locks a row, has a number, and waits for the disk.
func TestTryOfWhatIsTakenWritesNothing(t *testing.T) {
	pool := outside(t)
	session := opened(t, pool)
	mustExec(t, pool, "SELECT first FROM tierlock.enter($1, $2, $3, false, 0, NULL, false)", lockPath(t), newID(), session)
	tx := begun(t, pool)
	const try = "SELECT number FROM tierlock.enter($1, $2, $3, false, 0, NULL, true)"
	const written = "SELECT pg_current_xact_id_if_assigned() IS NOT NULL"
	if n := mustExec(t, tx, try, lockPath(t), newID(), session); n != nil || mustExec(t, tx, written) == true {
		t.Errorf("number %v in a queue that is not free, or something was written", n)
	}
	if n := mustExec(t, tx, try, lockPath(t)+"-free", newID(), session); n == nil || mustExec(t, tx, written) == false {
		t.Errorf("number %v in a queue that is free, or nothing was written", n)
	}
	tx.Rollback(soon(t))
	mustExec(t, pool, "SELECT tierlock.finish($1)::text", session)
}

func TestWhatCountsIsDurableWhateverTheRoleHas(t *testing.T) {
	pool := outside(t)
	session, id := opened(t, pool), newID()
	mustExec(t, pool, enterFirst, id, session)
	for _, call := range []string{
		"SELECT tierlock.open('" + newID() + "', 1000, '', 0, '')::text",
		"SELECT alive FROM tierlock.beat('" + session + "', 60000)",
		"SELECT first FROM tierlock.enter('/q', '" + newID() + "', '" + session + "', false, 0, NULL, false)",
		"SELECT tierlock.share('/q', '" + id + "')",
		"SELECT tierlock.leave('/q', '" + id + "')",
		"SELECT tierlock.settle('/q')::text",
	} {
		tx := begun(t, pool)
		if _, err := tx.Exec(soon(t), "SET LOCAL synchronous_commit = off"); err != nil {
			t.Fatal(err)
		}
		mustExec(t, tx, call)
		if got := mustExec(t, tx, "SELECT current_setting('synchronous_commit')"); got != "on" {
			t.Errorf("%s with synchronous_commit %v", call, got)
		}
		tx.Rollback(soon(t))
	}
	mustExec(t, pool, "SELECT tierlock.finish($1)::text", session)
}

func TestTransactionsAreReadCommittedWhateverTheRoleHas(t *testing.T) {
	p := startAt(t, pgserver.PlainURL(server(t).Addr())+"&default_transaction_isolation=serializable&default_transaction_read_only=on")
	mustRelease(t, mustAcquire(t, p.at(t, lockPath(t))))
	tx, err := outside(t).BeginTx(soon(t), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(soon(t), "SELECT tierlock.leave('/q', $1)", newID()); err == nil || !strings.Contains(err.Error(), "read committed") {
		t.Errorf("%v", err)
	}
}

func TestMissingSchemaIsNamed(t *testing.T) {
	t.Parallel()
	pool := database(t)
	p := begin(t, pool)
	defer p.Close()
	fails := func(want ...string) {
		t.Helper()
		eventually(t, "an error that names "+strings.Join(want, ", "), func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := p.at(t, "/x").Acquire(ctx)
			for _, text := range want {
				if err == nil || !strings.Contains(err.Error(), text) {
					return false
				}
			}
			return errors.Is(err, errSchema)
		})
	}
	fails("no schema tierlock", "pglock.Migrate", "pglock.Schema")
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := Migrate(soon(t), pool); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	eventually(t, "a session", func() bool { return p.Err() == nil })
	mustRelease(t, mustAcquire(t, p.at(t, "/x")))

	if _, err := pool.Exec(soon(t), "CREATE OR REPLACE FUNCTION tierlock.version() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 3'"); err != nil {
		t.Fatal(err)
	}
	mustExec(t, pool, "WITH gone AS (DELETE FROM tierlock.session RETURNING 1) SELECT count(*) FROM gone")
	fails("version 3", "later release")
	wantErr(t, Migrate(soon(t), pool), errSchema)
}

func TestRightsThatAreMissingAreNamed(t *testing.T) {
	t.Parallel()
	admin := database(t)
	if err := Migrate(soon(t), admin); err != nil {
		t.Fatal(err)
	}
	url := strings.Replace(admin.Config().ConnString(), "//postgres@", "//plain@", 1)
	pool := poolAt(t, url, nil)
	defer pool.Close()
	p := begin(t, pool)
	defer p.Close()
	if g, err := p.at(t, "/x").Acquire(soon(t)); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("%v, %v", g, err)
	}
	if _, err := admin.Exec(soon(t), "GRANT USAGE ON SCHEMA tierlock TO plain; GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA tierlock TO plain"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "an error that names what is missing", func() bool {
		_, err := p.at(t, "/x").Acquire(soon(t))
		return errors.Is(err, errRights) && strings.Contains(err.Error(),
			"role plain has not USAGE ON SEQUENCE tierlock.token, DELETE ON tierlock.contender, DELETE ON tierlock.session;") && strings.Contains(err.Error(), "pglock.Migrate")
	})
	for _, grant := range []string{"USAGE ON SCHEMA tierlock", "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA tierlock", "USAGE, UPDATE ON ALL SEQUENCES IN SCHEMA tierlock"} {
		if _, err := admin.Exec(soon(t), "GRANT "+grant+" TO plain"); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "a lock", func() bool {
		g, err := p.at(t, "/x").Acquire(soon(t))
		return err == nil && g.Release() == nil
	})
}

// The clock of the server was ahead when it was promoted, or started, and then set right.
func TestQuarantineIsNeverLongerThanTheLongestLease(t *testing.T) {
	t.Parallel()
	pool := database(t)
	if err := Migrate(soon(t), pool); err != nil {
		t.Fatal(err)
	}
	opened(t, pool) // for a minute
	for _, tier := range []struct{ ahead, left, begun string }{
		{"UPDATE tierlock.promotion SET quiet = clock_timestamp() + interval '1 hour' RETURNING one", "SELECT tierlock.quiet_ms()",
			"UPDATE tierlock.promotion SET quiet = quiet - interval '20 seconds' RETURNING one"},
		{"INSERT INTO tierlock.server SELECT true, tierlock.life(), clock_timestamp() + interval '1 hour', 60000 ON CONFLICT (one) DO UPDATE SET since = excluded.since, ttl_ms = 60000 RETURNING one",
			"SELECT tierlock.quarantine(60000)", "UPDATE tierlock.server SET since = since - interval '20 seconds' RETURNING one"},
	} {
		mustExec(t, pool, tier.ahead)
		if left := mustExec(t, pool, tier.left).(int64); left > 60_000 || left < 40_000 {
			t.Errorf("%s is %d, want that the quarantine of a minute begins anew", tier.left, left)
		}
		mustExec(t, pool, tier.begun)
		if left := mustExec(t, pool, tier.left).(int64); left > 40_000 {
			t.Errorf("%s is %d after 20 s, want that it goes on", tier.left, left)
		}
	}
}

// As pg_dump --schema-only and a restore leave it, or TRUNCATE.
func TestSchemaWithoutItsRowsServes(t *testing.T) {
	t.Parallel()
	pool := database(t)
	if err := Migrate(soon(t), pool); err != nil {
		t.Fatal(err)
	}
	empty := func() {
		if _, err := pool.Exec(soon(t), "TRUNCATE tierlock.promotion, tierlock.server, tierlock.session, tierlock.contender"); err != nil {
			t.Fatal(err)
		}
	}
	empty()
	p := begin(t, pool)
	defer p.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*ttl)
	defer cancel()
	g, err := p.at(t, "/x").Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	mustRelease(t, g)
	if n := mustExec(t, pool, "SELECT longest_ms FROM tierlock.promotion"); n != ttl.Milliseconds() {
		t.Errorf("the longest TTL is %v", n)
	}
	empty()
	mustRelease(t, mustAcquire(t, p.at(t, "/x"))) // the process has a session again, and nobody else a lease
	if queue, err := p.at(t, "/x").Contenders(soon(t)); err != nil || len(queue) != 0 {
		t.Errorf("%v, %v", queue, err)
	}
}

// Somebody wants short quarantines again while others run.
func TestLongestLeaseIsNotedWithEachRenewal(t *testing.T) {
	t.Parallel()
	pool := database(t)
	if err := Migrate(soon(t), pool); err != nil {
		t.Fatal(err)
	}
	id := opened(t, pool)
	if _, err := pool.Exec(soon(t), "UPDATE tierlock.promotion SET longest_ms = 0"); err != nil {
		t.Fatal(err)
	}
	mustExec(t, pool, "SELECT alive FROM tierlock.beat($1, 60000)", id)
	if n := mustExec(t, pool, "SELECT longest_ms FROM tierlock.promotion"); n != int64(60_000) {
		t.Errorf("the longest TTL is %v, want that of who runs", n)
	}
}

func TestWhatTheDatabaseCannotEncodeIsNamed(t *testing.T) {
	t.Parallel()
	for encoding, refuses := range map[string]bool{"LATIN1": true, "SQL_ASCII": false} {
		name := "db_" + strings.ReplaceAll(newID(), "-", "")
		url := pgserver.URL(server(t).Addr())
		admin := poolAt(t, url, nil)
		defer admin.Close()
		if _, err := admin.Exec(soon(t), "CREATE DATABASE "+name+" ENCODING '"+encoding+"' LOCALE 'C' TEMPLATE template0"); err != nil {
			t.Fatal(err)
		}
		pool := poolAt(t, strings.Replace(url, "/postgres?", "/"+name+"?", 1), nil)
		defer pool.Close()
		if err := Migrate(soon(t), pool); err != nil {
			t.Fatal(err)
		}
		const label, path = "the first → the last", "/→"
		locks, err := New(pool, WithLeaseTTL(ttl), WithLabel(label))
		if err != nil {
			t.Fatal(err)
		}
		defer locks.Close()
		hold, err := locks.Mutex(path).Acquire(soon(t))
		if !refuses {
			if err != nil {
				t.Fatal(err)
			}
			if queue, err := locks.Mutex(path).Contenders(soon(t)); err != nil || queue[0].Label != label {
				t.Errorf("%s: %v, %v", encoding, queue, err)
			}
			mustRelease(t, hold.Grant())
			continue
		}
		if !errors.Is(err, errEncoding) || !strings.Contains(err.Error(), label) || !strings.Contains(err.Error(), encoding) {
			t.Errorf("%s: %v, want that it cannot encode the label", encoding, err)
		}
		other, err := New(pool, WithLeaseTTL(ttl))
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		if _, err := other.Mutex(path).Acquire(soon(t)); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), encoding) {
			t.Errorf("%s: %v, want that it cannot encode the path", encoding, err)
		}
	}
}

func TestSessionsThatAreLongOverAreRemoved(t *testing.T) {
	pool := outside(t)
	id := opened(t, pool)
	exec(t, "UPDATE tierlock.session SET expires = expires - interval '1 hour' WHERE id = $1", id)
	mustExec(t, pool, "SELECT alive FROM tierlock.beat($1, 60000)", opened(t, pool))
	if n := mustExec(t, pool, "SELECT count(*) FROM tierlock.session WHERE id = $1", id); n != int64(0) {
		t.Error("it is there")
	}
}
