package pglock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/pgserver"
	"github.com/tierlock/tierlock/tier"
)

// opened creates a session that lasts for a minute, and returns its ID.
func opened(t *testing.T, pool *pgxpool.Pool) (id string) { return openedFor(t, pool, time.Minute) }

func openedFor(t *testing.T, pool *pgxpool.Pool, d time.Duration) (id string) {
	t.Helper()
	id = newID()
	exec(t, pool, "SELECT tierlock.open($1, $2, 'host', 1, '')", id, d.Milliseconds())
	return id
}

const enterSession = "SELECT first FROM tierlock.enter($1, $2, $3, false, 0, NULL, false)"

// entered adds a contender to a queue, and reports whether it is the first.
func entered(t *testing.T, q querier, path, id, session string) (first bool) {
	t.Helper()
	return ask[bool](t, q, enterSession, path, id, session)
}

// renewed renews a session for another minute, and reports whether the session had not ended before.
func renewed(t *testing.T, q querier, session string) (alive bool) {
	t.Helper()
	return ask[bool](t, q, "SELECT alive FROM tierlock.beat($1, 60000)", session)
}

// Two processes enter the same queue, and the transaction of the first one takes long to commit. Without a lock on the queue, both
// processes would be first.
func TestNumbersAreDrawnUnderTheLockOfTheQueue(t *testing.T) {
	t.Parallel()
	pool := outside(t)
	mine, theirs := opened(t, pool), opened(t, pool)
	slow := begun(t, pool)
	need.That(t, "the only one is not the first", entered(t, slow, lockPath(t), newID(), mine))
	first := make(chan bool, 1)
	go func() {
		var is bool
		pool.QueryRow(soon(t), enterSession, lockPath(t), newID(), theirs).Scan(&is)
		first <- is
	}()
	eventually(t, "the second is answered, or waits", func() bool {
		const waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND " +
			"(classid::bigint << 32) | objid::bigint = tierlock.key($1)"
		return len(first) > 0 || ask[int](t, pool, waiting, lockPath(t)) == 1
	})
	slow.Commit(soon(t))
	need.That(t, "both are first", !<-first)
	for _, session := range []string{mine, theirs} {
		exec(t, pool, "SELECT tierlock.finish($1)", session)
	}
}

// A transaction that ends a session is open while the session is renewed. The renewal waits for it and then fails, although it was sent in
// time.
func TestSessionThatWasFoundOverIsNotRenewed(t *testing.T) {
	t.Parallel()
	pool := outside(t)
	id, short, finder := opened(t, pool), openedFor(t, pool, 400*time.Millisecond), begun(t, pool)
	ask[any](t, finder, "SELECT count(*) FROM (SELECT FROM tierlock.session WHERE id = ANY($1) FOR SHARE) s", []string{id, short})
	late := make(chan bool)
	go func() {
		var alive bool
		pool.QueryRow(soon(t), "SELECT alive FROM tierlock.beat($1, 60000)", short).Scan(&alive)
		late <- alive
	}()
	time.Sleep(600 * time.Millisecond) // now the session has expired
	finder.Rollback(soon(t))
	need.That(t, "renewed", !<-late)
	need.That(t, "a session that had not ended was not renewed", renewed(t, pool, id))
}

// A renewal was sent in time and takes long to commit. A transaction that ends expired sessions has to wait for it. The renewal of another
// session does not wait.
func TestRenewalUnderWayCounts(t *testing.T) {
	t.Parallel()
	pool := outside(t)
	const lease = 2 * time.Second
	session, another, id := openedFor(t, pool, lease), opened(t, pool), newID()
	entered(t, pool, lockPath(t), id, session)
	renewal := begun(t, pool)
	need.That(t, "not renewed", renewed(t, renewal, session))
	time.Sleep(lease)
	behind := make(chan error)
	var first bool
	go func() { behind <- pool.QueryRow(soon(t), enterSession, lockPath(t), newID(), another).Scan(&first) }()
	need.That(t, "it is to be removed", !ask[bool](t, pool, "SELECT $2 = ANY (stale) FROM tierlock.beat($1, 60000)", another, id))
	time.Sleep(100 * time.Millisecond)
	renewal.Commit(soon(t))
	need.OK(t, <-behind)
	need.That(t, "the contender that came meanwhile has the lock", !first)
	need.Equal(t, "contenders", left(t, lockPath(t)), 2)
	exec(t, pool, "SELECT tierlock.finish($1), tierlock.finish($2)", session, another)
}

// A request may stop waiting for the standby. The primary then has its write, and the standby may lack it. If the request is repeated, its
// answer comes only when the standby has the write, too.
func TestRepeatedRequestWaitsForTheStandby(t *testing.T) {
	t.Parallel()
	e := childtest.StartEnsemble(t, pgserver.StartEnsemble, 2, pgserver.Config{NoSync: true, Synchronous: true})
	pool := migrated(t, pgserver.PlainURL(e.Members[0].Addr()))
	session, id := opened(t, pool), newID()
	e.Isolate(e.Members[0])
	enter := func() error {
		return pool.QueryRow(need.Within(t, 500*time.Millisecond), enterSession, "/q", id, session).Scan(new(bool))
	}
	wantErr(t, enter(), context.DeadlineExceeded)
	eventually(t, "the contender at the primary", func() bool { return ask[int](t, pool, "SELECT count(*) FROM tierlock.contender") == 1 })
	wantErr(t, enter(), context.DeadlineExceeded)
	e.Heal()
	eventually(t, "an answer", func() bool { return enter() == nil })
}

// Without a notification, holders and waiters would learn of a change only from the next renewal. A TryAcquire of a taken lock notifies no
// process, writes nothing and locks no row. If it did, it would need a transaction ID and wait for the disk.
func TestWhoIsConcernedIsTold(t *testing.T) {
	t.Parallel()
	pool := poolAt(t, database(t))
	exec(t, pool, Schema)
	session, dying := opened(t, pool), opened(t, pool)
	ear, err := pool.Acquire(soon(t))
	if err == nil {
		defer ear.Release()
		_, err = ear.Exec(soon(t), fmt.Sprintf(`LISTEN "tierlock %s"; LISTEN "tierlock %s"; LISTEN heard`, session, dying),
			pgx.QueryExecModeSimpleProtocol)
	}
	need.OK(t, err)
	// In this test, the name of a contender is a letter, which is the last character of its ID.
	id := func(name string) string { return "00000000-0000-4000-8000-00000000000" + name }
	enter := func(name, session, old string) string {
		return fmt.Sprintf("SELECT tierlock.enter('/q', '%s', '%s', false, 0, %s, false)", id(name), session, old)
	}
	try := fmt.Sprintf(`SELECT number, 1 / (pg_current_xact_id_if_assigned() IS NULL)::int
		FROM tierlock.enter('/q', '%s', '%s', false, 0, NULL, true)`, id("f"), session)
	take := func(name string, n int) string {
		return fmt.Sprintf("SELECT tierlock.enter('/p', '%s', '%s', false, 0, NULL, false, %d, 2)", id(name), session, n)
	}
	weigh := func(name string, n int) string {
		return fmt.Sprintf("SELECT tierlock.change('/p', '%s', false, %d)", id(name), n)
	}
	read := func(name string, reads bool) string {
		return fmt.Sprintf("SELECT tierlock.enter('/r', '%s', '%s', %t, 0, NULL, false)", id(name), session, reads)
	}
	leave := func(path, name string) string { return "SELECT tierlock.leave('" + path + "', '" + id(name) + "')" }
	for _, step := range []struct{ what, sql, told string }{
		{"the first enters", enter("a", dying, "NULL"), ""},
		{"a try of what is taken", try, ""},
		{"one waits", enter("b", session, "NULL"), "look /q"},
		{"another one waits", enter("c", session, "NULL"), ""},
		{"the holder is asked", "SELECT tierlock.ask('/q')", "look /q"},
		{"the session of the first is over", "UPDATE tierlock.session SET expires = '-infinity' WHERE id = '" + dying + "'", ""},
		{"one enters, which finds that", enter("d", session, "NULL"), "turn b true"},
		{"the lock goes on", enter("e", session, "'"+id("b")+"'"), "turn c true"},
		{"one does not wait any more", leave("/q", "d"), "look /q"},
		{"a release", leave("/q", "c"), "turn e false"},
		{"all permits are taken", take("1", 2), ""},
		{"one waits for two", take("2", 2), ""},
		{"another one waits", take("3", 1), "look /p"},
		{"one is given back", weigh("1", 1), "look /p"},
		{"one is enough", weigh("2", 1), "turn 2 true, look /p"},
		{"one of two gives up what it has", leave("/p", "1"), "turn 3 false"},
		{"one reads", read("7", true), ""},
		{"another one reads, too", read("8", true), ""},
		{"one waits to write", read("9", false), "look /r"},
		{"one of two does not read any more", leave("/r", "7"), ""},
	} {
		exec(t, pool, step.sql)
		exec(t, pool, "NOTIFY heard")
		var told []string
		for {
			n := need.Get(ear.Conn().WaitForNotification(soon(t)))(t)
			if n.Channel == "heard" {
				break
			}
			told = append(told, strings.Replace(n.Payload, id(""), "", 1))
		}
		need.Equal(t, step.what+": told", strings.Join(told, ", "), step.told)
	}
}

func TestWhatCountsIsDurableWhateverTheRoleHas(t *testing.T) {
	t.Parallel()
	pool := outside(t)
	session, id := opened(t, pool), newID()
	entered(t, pool, lockPath(t), id, session)
	at := "('" + lockPath(t) + "', '"
	for _, call := range []string{
		"SELECT tierlock.open('" + newID() + "', 1000, '', 0, '')::text",
		"SELECT alive FROM tierlock.beat('" + session + "', 60000)",
		"SELECT first FROM tierlock.enter" + at + newID() + "', '" + session + "', false, 0, NULL, false)",
		"SELECT tierlock.change" + at + id + "', true, 0)",
		"SELECT tierlock.leave" + at + id + "')",
		"SELECT tierlock.drop(ARRAY['" + id + "'])::text",
	} {
		tx := begun(t, pool)
		need.Get(tx.Exec(soon(t), "SET LOCAL synchronous_commit = off"))(t)
		ask[any](t, tx, call)
		need.Equal(t, call+": synchronous_commit", ask[string](t, tx, "SELECT current_setting('synchronous_commit')"), "on")
		tx.Rollback(soon(t))
	}
	exec(t, pool, "SELECT tierlock.finish($1)", session)
}

// refused waits until an acquisition fails with an error that contains all of these texts.
func (p *process) refused(t *testing.T, want ...string) {
	t.Helper()
	eventually(t, "an error that names "+strings.Join(want, ", "), func() bool {
		_, err := p.at(t, "/x").Acquire(need.Within(t, time.Second))
		return err != nil && !slices.ContainsFunc(want, func(text string) bool { return !strings.Contains(err.Error(), text) })
	})
}

func TestMissingSchemaIsNamed(t *testing.T) {
	t.Parallel()
	url := database(t)
	pool, p := poolAt(t, url), tables.begin(t, url)
	p.refused(t, errSchema.Error(), "no schema tierlock", "pglock.Migrate", "pglock.Schema")
	for _, f := range flavours {
		_, err := f.front(soon(t), pool)
		need.WantErr(t, f.name, err, errSchema)
		need.That(t, "it waits until ctx is done", !errors.Is(err, context.DeadlineExceeded))
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { need.WantErr(t, "Migrate", Migrate(soon(t), pool), nil) })
	}
	all.Wait()
	eventually(t, "a session", func() bool { return p.Err() == nil })
	mustRelease(t, p.mustAcquire(t))
	exec(t, pool, "CREATE OR REPLACE FUNCTION tierlock.version() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 3000'")
	exec(t, pool, "DELETE FROM tierlock.session")
	p.refused(t, errSchema.Error(), "version 3000", "later release")
	wantErr(t, Migrate(soon(t), pool), errSchema)
}

func TestRightsThatAreMissingAreNamed(t *testing.T) {
	t.Parallel()
	url := database(t)
	admin := migrated(t, url)
	p := tables.begin(t, strings.Replace(url, "//postgres@", "//plain@", 1))
	p.refused(t, "permission denied")
	exec(t, admin, "GRANT USAGE ON SCHEMA tierlock TO plain; GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA tierlock TO plain")
	p.refused(t, errRights.Error(), "pglock.Migrate",
		"role plain lacks UPDATE ON SEQUENCE tierlock.token, USAGE ON SEQUENCE tierlock.token, "+
			"DELETE ON tierlock.contender, DELETE ON tierlock.session;")
	exec(t, admin, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA tierlock TO plain;"+
		"GRANT USAGE, UPDATE ON ALL SEQUENCES IN SCHEMA tierlock TO plain")
	eventually(t, "a lock", func() bool {
		g, err := p.at(t, "/x").Acquire(soon(t))
		return err == nil && g.Release() == nil
	})
}

// The clock may be ahead when the server is started or promoted, and then be set right. The grace period must not become longer.
func TestGracePeriodIsNeverLongerThanTheLongestLease(t *testing.T) {
	t.Parallel()
	pool := migrated(t, database(t))
	opened(t, pool) // the longest lease is then a minute
	for _, kind := range []string{"tables", "advisory"} {
		left := "SELECT tierlock.quiet_ms('" + kind + "', 60000)"
		exec(t, pool, "UPDATE tierlock.grace_period SET since = clock_timestamp() + interval '1 hour', longest_ms = 60000 WHERE locks = $1", kind)
		need.Between(t, kind+": the grace period of a minute, which has started again", ask[int](t, pool, left), 40_000, 60_000)
		exec(t, pool, "UPDATE tierlock.grace_period SET since = since - interval '20 seconds' WHERE locks = $1", kind)
		need.AtMost(t, kind+": the grace period after 20 s", ask[int](t, pool, left), 40_000)
	}
}

// The tables of the schema may have no rows, as after TRUNCATE, or after a restore of a dump by pg_dump --schema-only. Locks still work.
func TestSchemaWithoutItsRowsServes(t *testing.T) {
	t.Parallel()
	url := database(t)
	pool := migrated(t, url)
	const empty = "TRUNCATE tierlock.grace_period, tierlock.session, tierlock.contender"
	exec(t, pool, empty)
	p := tables.begin(t, url)
	mustRelease(t, p.mustAcquire(t))
	const longest = "SELECT longest_ms FROM tierlock.grace_period WHERE locks = 'tables'"
	need.Equal(t, "the longest TTL", ask[int64](t, pool, longest), ttl.Milliseconds())
	exec(t, pool, empty)
	mustRelease(t, p.mustAcquire(t)) // the process has opened a new session, and no other process has a lease
	need.Equal(t, "contenders are left", ask[int](t, pool, "SELECT count(*) FROM tierlock.contender"), 0)
}

// A renewal also records the longest TTL, even if an operator has reset that record. It deletes sessions that expired long ago and have no
// contenders. For other expired sessions, it returns the IDs of their contenders. It does not delete these, because their successors would
// not be notified.
func TestRenewalSeesToOthers(t *testing.T) {
	t.Parallel()
	pool := migrated(t, database(t))
	id, over, empty := opened(t, pool), opened(t, pool), opened(t, pool)
	dead := newID()
	entered(t, pool, "/x", dead, over)
	exec(t, pool, "UPDATE tierlock.grace_period SET longest_ms = 0")
	exec(t, pool, "UPDATE tierlock.session SET expires = expires - interval '1 hour' WHERE id <> $1", id)
	stale := ask[[]string](t, pool, "SELECT stale FROM tierlock.beat($1, 60000)", id)
	need.List(t, "contenders whose session is over", stale, dead)
	longest := ask[int](t, pool, "SELECT longest_ms FROM tierlock.grace_period WHERE locks = 'tables'")
	need.Equal(t, "the longest TTL of a running process", longest, 60_000)
	need.Equal(t, "contenders, one of them to be removed", ask[int](t, pool, "SELECT count(*) FROM tierlock.contender"), 1)
	need.Equal(t, "sessions long over", ask[int](t, pool, "SELECT count(*) FROM tierlock.session WHERE id = $1", empty), 0)
}

func TestWhatTheDatabaseCannotEncodeIsNamed(t *testing.T) {
	t.Parallel()
	for encoding, refuses := range map[string]bool{"LATIN1": true, "SQL_ASCII": false} {
		url := database(t, "ENCODING '"+encoding+"' LOCALE 'C' TEMPLATE template0")
		migrated(t, url)
		const label, path = "the first → the last", "/→"
		l := tables.begin(t, url, tier.WithLabel(label)).at(t, path)
		_, err := l.Acquire(soon(t))
		if !refuses {
			need.OK(t, err)
			need.Equal(t, encoding+": the label", contenders(t, l)[0].Label, label)
			continue
		}
		need.WantErr(t, encoding, err, errEncoding)
		need.WantMention(t, err, label, encoding)
		_, err = tables.begin(t, url).at(t, path).Acquire(soon(t))
		need.WantMention(t, err, path, encoding)
	}
}
