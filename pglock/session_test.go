package pglock

import (
	"bytes"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
)

// For longer than a lease, a guarded transaction uses all connections of the program's pool, and a transaction of another program locks the
// queue. Renewals still succeed.
func TestRenewalsWaitForNobody(t *testing.T) {
	t.Parallel()
	locks := need.Get(New(t.Context(), poolAt(t, sharedURL(t), func(c *pgxpool.Config) { c.MaxConns = 1 }), tier.WithLeaseTTL(ttl)))(t)
	defer locks.Close()
	hold := need.Get(locks.Mutex(lockPath(t)).Acquire(soon(t)))(t)
	tx := begun(t, outside(t))
	ask[any](t, tx, "SELECT pg_advisory_xact_lock(tierlock.key($1))::text", lockPath(t))
	need.OK(t, Tx(soon(t), hold, func(tx pgx.Tx) error {
		for end := time.Now().Add(2 * ttl); time.Now().Before(end); { // each statement is shorter than the lease
			if _, err := tx.Exec(soon(t), "SELECT pg_sleep(0.2)"); err != nil {
				return err
			}
		}
		return nil
	}))
	tx.Rollback(soon(t))
	mustRelease(t, hold)
}

// One request renews all locks of a process, for any number of locks.
func TestOneRenewalIsForAllLocks(t *testing.T) {
	t.Parallel()
	begun, p := time.Now(), start(t, tier.WithLeaseTTL(unhurried))
	var held *queue.Contender
	for i := range 40 {
		held = must(t, p.at(t, fmt.Sprintf("%s-%d", lockPath(t), i)))
	}
	var requests atomic.Int64
	p.network.onRequest(func(request []byte) {
		if bytes.Contains(request, []byte("tierlock.beat")) {
			requests.Add(1)
		}
	})
	const rounds = 3
	for range rounds {
		before := requests.Load()
		p.Renew()
		eventually(t, "a renewal", func() bool { return requests.Load() > before })
		held.Store().Do(soon(t), queue.Command{Op: queue.Audit, Session: p.session(t)}) // waits until the renewal has ended
	}
	need.AtMost(t, "requests for renewals", requests.Load(), rounds+int64(time.Since(begun)/(unhurried/4)))
}

// Notifications may be lost without an error. The next renewal then reports the same changes.
func TestNotificationsMayBeLost(t *testing.T) {
	t.Parallel()
	const slow = 4 * ttl // long, so that a busy machine keeps the lease and the limit
	p, q := start(t, tier.WithLeaseTTL(slow)), start(t, tier.WithLeaseTTL(slow))
	p.network.deaf.Store(true)
	q.network.deaf.Store(true)
	c := p.mustAcquire(t)
	c.Contended().C() // makes the store look for waiters
	w := q.waits(t)
	within(t, slow/3+slow/4, "the holder is contended", c.Contended().Raised)
	mustRelease(t, c)
	mustRelease(t, w.Within(t, slow/3+slow/4))
}

// A request without an answer may be executed after its contender was released. A standby that takes over may lack a release that the old
// primary has acknowledged. The contender is then removed. A request that is executed after the end of its session has no effect.
func TestLateRequestLeavesNothing(t *testing.T) {
	t.Parallel()
	p := start(t)
	x, c := p.session(t), p.mustAcquire(t)
	mustRelease(t, c)
	enter := func() {
		exec(t, outside(t), "SELECT tierlock.enter($1, $2, $3, false, 0, NULL, false)", lockPath(t), c.Ref().ID, x)
	}
	for name, happens := range map[string]func(){
		"no answer": func() {
			var once atomic.Bool
			p.network.messages(func() bool { return !once.Swap(true) }) // the answer to the next request is lost
			mustRelease(t, must(t, p.at(t, lockPath(t)+"-2")))
		},
		"another connection": p.network.reset,
	} {
		enter()
		happens()
		eventually(t, name+": an empty queue", func() bool { return left(t, lockPath(t)) == 0 })
		need.Equal(t, name+": the session, or it was removed for another reason", p.session(t), x)
	}
	p.Close()
	enter()
	need.Equal(t, "contenders of a session that is over", left(t, lockPath(t)), 0)
}

// A late request for permits must not take released permits back. Permits at a path are independent of the lock at that path.
func TestLateRequestForPermitsTakesNothingBack(t *testing.T) {
	t.Parallel()
	p := start(t, tier.WithLeaseTTL(unhurried))
	held, id := p.mustAcquire(t), newID()
	do := func(op queue.Op, weight int) {
		t.Helper()
		c := queue.Command{Op: op, Session: p.session(t), Ref: queue.Ref{Path: lockPath(t), ID: id, Permits: 5}, Weight: weight}
		need.That(t, fmt.Sprintf("%s %d: it has nothing", op, weight), held.Store().Do(soon(t), c).View.Has)
	}
	do(queue.Try, 4)
	for _, weight := range []int{2, 3, 4} {
		do(queue.Weigh, weight)
		need.Equal(t, "permits", ask[int](t, outside(t), "SELECT weight FROM tierlock.contender WHERE id = $1", id), 2)
	}
	need.Equal(t, "in the queue for the lock, its holder", left(t, lockPath(t)), 1)
	mustRelease(t, held)
	const more = "SELECT first FROM tierlock.enter($1, $2, $3, false, 0, NULL, true, 3, 2)"
	need.Equal(t, "three of two", ask[bool](t, outside(t), more, lockPath(t)+"-2", newID(), p.session(t)), false)
}

// The server accepts no more connections, and the process has only the one that renews its session. A release must still succeed.
func TestReleaseAtAFullServerMakesWay(t *testing.T) {
	t.Parallel()
	url := database(t)
	admin := migrated(t, url)
	role := "few_" + newID()
	exec(t, admin, "CREATE ROLE "+role+" LOGIN SUPERUSER")
	p, q := tables.start(t, strings.Replace(url, "//postgres@", "//"+role+"@", 1)), tables.start(t, url)
	c, w := p.mustAcquire(t), q.waits(t)
	exec(t, admin, "ALTER ROLE "+role+" NOSUPERUSER CONNECTION LIMIT 1; GRANT ALL ON ALL TABLES IN SCHEMA tierlock TO "+role+
		"; GRANT USAGE ON SCHEMA tierlock TO "+role)
	exec(t, admin, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1 AND query LIKE '%tierlock.enter%'", role)
	mustRelease(t, c)
	mustRelease(t, w.Within(t, ttl))
	const alive = "SELECT count(*) FROM tierlock.session WHERE label = $1 AND expires > clock_timestamp()"
	need.Equal(t, "sessions, without which nothing is tested", ask[int](t, admin, alive, p.label), 1)
}

// The connection that renews the session must not execute a statement that waits for other transactions.
func TestWhatIsDroppedWaitsForNobody(t *testing.T) {
	t.Parallel()
	pool := outside(t)
	session, id, other := opened(t, pool), newID(), newID()
	entered(t, pool, lockPath(t), id, session)
	entered(t, pool, lockPath(t)+"-2", other, session)
	enclosed, guarded := begun(t, pool), begun(t, pool)
	ask[any](t, enclosed, "SELECT tierlock.enclose($1)::text", lockPath(t))
	ask[any](t, guarded, "SELECT tierlock.guard($1)::text", other)
	drop := func(want ...int) {
		t.Helper()
		exec(t, pool, "SELECT tierlock.drop($1)", []string{id, other})
		need.List(t, "contenders that are left", []int{left(t, lockPath(t)), left(t, lockPath(t)+"-2")}, want...)
	}
	drop(1, 1)
	enclosed.Rollback(soon(t))
	drop(0, 1)
	guarded.Rollback(soon(t))
	drop(0, 0)
	exec(t, pool, "SELECT tierlock.finish($1)", session)
}

// After the death of a process with many contenders, one renewal of another process removes all of them. If that took many renewals, a
// process that waits behind another dead process would have to wait longer.
func TestManyContendersOfADeadProcessAreRemovedWithOneRenewal(t *testing.T) {
	t.Parallel()
	url := database(t)
	pool := migrated(t, url)
	p, dead := tables.start(t, url, tier.WithLeaseTTL(unhurried)), opened(t, pool)
	exec(t, pool, `INSERT INTO tierlock.contender (path, token, id, session, reads, linger_ms)
		SELECT '/dead/' || i, nextval('tierlock.token'), gen_random_uuid()::text, $1, false, 0 FROM generate_series(1, 450) i`, dead)
	exec(t, pool, "UPDATE tierlock.session SET expires = '-infinity' WHERE id = $1", dead)
	p.Renew() // without this, the next renewal would come after 15 s
	within(t, unhurried/5, "all of them are removed", func() bool {
		return ask[int](t, pool, "SELECT count(*) FROM tierlock.contender WHERE session = $1", dead) == 0
	})
}

// A server has memory for a few thousand locks. If the end of one process used all of it, requests of other processes would fail. Therefore
// the process removes its contenders a few at a time.
func TestEndOfAProcessWithManyLocksTakesFewAtATime(t *testing.T) {
	t.Parallel()
	p := start(t, tier.WithLeaseTTL(unhurried))
	id := p.session(t)
	crowd(t, id, "$1 || '/' || i", lockPath(t), 250)
	tx := begun(t, outside(t))
	ask[any](t, tx, "SELECT tierlock.finish($1)", id)
	const locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
	need.Between(t, "locks at a time", ask[int](t, tx, locks), 1, 100)
	tx.Rollback(soon(t))
	p.Close()
	const rows = "SELECT (SELECT count(*) FROM tierlock.contender WHERE session = $1) + (SELECT count(*) FROM tierlock.session WHERE id = $1)"
	need.Equal(t, "rows that are left", ask[int](t, outside(t), rows, id), 0)
}
