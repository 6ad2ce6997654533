package pglock

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tierlock/tierlock/internal/pgserver"
	"github.com/tierlock/tierlock/internal/queue"
)

// The program keeps all its connections busy, for longer than a lease.
func TestBusyPoolEndsNoLease(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig(pgserver.PlainURL(server(t).Addr()))
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	conn, err := pool.Acquire(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	locks, err := New(pool, WithLeaseTTL(ttl))
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	hold := mustHold(t, locks, lockPath(t))
	select {
	case <-hold.Lost():
		t.Error(hold.Err())
	case <-time.After(2 * ttl):
	}
	if err := hold.Release(); err != nil {
		t.Error(err)
	}
}

// A transaction of somebody else's has the queue, for longer than a lease.
func TestRenewalsWaitForNoQueue(t *testing.T) {
	t.Parallel()
	c := mustAcquire(t, start(t).at(t, lockPath(t)))
	tx := begun(t, outside(t))
	mustExec(t, tx, "SELECT pg_advisory_xact_lock(tierlock.key($1))::text", lockPath(t))
	select {
	case <-c.Context().Done():
		t.Error(c.Err())
	case <-time.After(2 * ttl):
	}
	tx.Rollback(soon(t))
	mustRelease(t, c)
}

func TestOneRenewalIsForAllLocks(t *testing.T) {
	t.Parallel()
	p := start(t)
	var all []*queue.Contender
	for i := range 40 {
		all = append(all, mustAcquire(t, p.at(t, fmt.Sprintf("%s-%d", lockPath(t), i))))
	}
	before, begun := p.line.renewals.Load(), time.Now()
	time.Sleep(ttl)
	n, most := p.line.renewals.Load()-before, 2+4*int64(time.Since(begun)/ttl+1)
	if n < 1 || n > most {
		t.Errorf("%d renewals, want at most %d", n, most)
	}
	for _, c := range all {
		mustRelease(t, c)
	}
}

// Notifications get lost, and nobody is told: all is known by the next renewal.
func TestNotificationsMayBeLost(t *testing.T) {
	t.Parallel()
	p, q := start(t), start(t)
	p.line.deaf.Store(true)
	q.line.deaf.Store(true)
	c := mustAcquire(t, p.at(t, lockPath(t)))
	contested := c.Contested().C()
	w := queueAt(t, q.at(t, lockPath(t)))
	ended(t, "the holder is contested", contested, ttl/3+ttl/8)
	released := time.Now()
	mustRelease(t, c)
	next := w.must(t)
	if took := time.Since(released); took > ttl/3+ttl/8 {
		t.Errorf("the next one had the lock after %v", took)
	}
	mustRelease(t, next)
}

// A request without an answer is executed after the release of what it was for.
func TestLateRequestLeavesNothing(t *testing.T) {
	t.Parallel()
	p := start(t)
	c := mustAcquire(t, p.at(t, lockPath(t)))
	var once atomic.Bool
	p.line.messages(func() bool { return !once.Swap(true) }) // any request without an answer
	mustRelease(t, mustAcquire(t, p.at(t, lockPath(t)+"-2")))
	mustRelease(t, c)
	exec(t, "SELECT tierlock.enter($1, $2, $3, false, 0, NULL, false)", lockPath(t), c.Ref().ID, p.session(t))
	eventually(t, "an empty queue", func() bool { return len(left(t, lockPath(t))) == 0 })
	mustRelease(t, mustAcquire(t, p.at(t, lockPath(t))))
}

// The server is full, and only the connection that renews the session is left.
func TestReleaseAtAFullServerMakesWay(t *testing.T) {
	t.Parallel()
	admin := database(t)
	if err := Migrate(soon(t), admin); err != nil {
		t.Fatal(err)
	}
	url := admin.Config().ConnString()
	role := "few_" + strings.ReplaceAll(newID(), "-", "")
	if _, err := admin.Exec(soon(t), "CREATE ROLE "+role+" LOGIN SUPERUSER"); err != nil {
		t.Fatal(err)
	}
	p, q := startAt(t, strings.Replace(url, "//postgres@", "//"+role+"@", 1)), startAt(t, url)
	x, c := p.session(t), mustAcquire(t, p.at(t, "/x"))
	w := wanting(t, q.at(t, "/x").Acquire)
	eventually(t, "somebody waits", func() bool { return mustExec(t, admin, "SELECT count(*) FROM tierlock.contender") == int64(2) })
	if _, err := admin.Exec(soon(t), "ALTER ROLE "+role+" NOSUPERUSER CONNECTION LIMIT 1; GRANT ALL ON ALL TABLES IN SCHEMA tierlock TO "+role+
		"; GRANT USAGE ON SCHEMA tierlock TO "+role); err != nil {
		t.Fatal(err)
	}
	mustExec(t, admin, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = $1 AND query LIKE '%tierlock.enter%'", role)
	released := time.Now()
	mustRelease(t, c)
	mustRelease(t, w.must(t))
	if took := time.Since(released); took > ttl {
		t.Errorf("the next one had the lock after %v, want at most %v", took, ttl)
	}
	if mustExec(t, admin, "SELECT count(*) FROM tierlock.session WHERE id = $1 AND expires > clock_timestamp()", x) != int64(1) {
		t.Error("the session is over: nothing was tested")
	}
}

// Nobody may be waited for on the connection that renews the session.
func TestWhatIsDroppedWaitsForNobody(t *testing.T) {
	t.Parallel()
	pool := outside(t)
	session, id, other := opened(t, pool), newID(), newID()
	const enter = "SELECT first FROM tierlock.enter($1, $2, $3, false, 0, NULL, false)"
	mustExec(t, pool, enter, lockPath(t), id, session)
	mustExec(t, pool, enter, lockPath(t)+"-2", other, session)
	enclosed, guarded := begun(t, pool), begun(t, pool)
	mustExec(t, enclosed, "SELECT tierlock.enclose($1)", lockPath(t))
	mustExec(t, guarded, "SELECT tierlock.guard($1)::text", other)
	drop := func(want ...int) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := pool.Exec(ctx, "SELECT tierlock.drop($1)", []string{id, other}); err != nil {
			t.Error(err)
		}
		if got := []int{len(left(t, lockPath(t))), len(left(t, lockPath(t)+"-2"))}; !slices.Equal(got, want) {
			t.Errorf("%v contenders are left, want %v", got, want)
		}
	}
	drop(1, 1)
	enclosed.Rollback(soon(t))
	drop(0, 1)
	guarded.Rollback(soon(t))
	drop(0, 0)
	mustExec(t, pool, "SELECT tierlock.finish($1)::text", session)
}

// A server that takes over may not have heard of a release that was acknowledged.
func TestWhatCameBackIsRemovedOnReconnection(t *testing.T) {
	t.Parallel()
	p := start(t)
	x, c := p.session(t), mustAcquire(t, p.at(t, lockPath(t)))
	mustRelease(t, c)
	exec(t, "SELECT tierlock.enter($1, $2, $3, false, 0, NULL, false)", lockPath(t), c.Ref().ID, x)
	p.line.reset()
	eventually(t, "an empty queue", func() bool { return len(left(t, lockPath(t))) == 0 })
	if p.session(t) != x {
		t.Error("it was removed for another reason")
	}
}

// What a process asked for that is executed when its session is over has no effect.
func TestRequestOfASessionThatIsOverHasNoEffect(t *testing.T) {
	t.Parallel()
	p := start(t)
	x := p.session(t)
	p.end()
	exec(t, "SELECT tierlock.enter($1, $2, $3, false, 0, NULL, false)", lockPath(t), newID(), x)
	if n := len(left(t, lockPath(t))); n != 0 {
		t.Errorf("%d contenders", n)
	}
}
