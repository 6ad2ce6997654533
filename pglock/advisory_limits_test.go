package pglock

import (
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tierlock/tierlock/internal/pgserver"
	"github.com/tierlock/tierlock/internal/pgserver/pgservertest"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/pglock/internal/advisory"
	"github.com/tierlock/tierlock/tier"
)

// startAdvisory starts a process that ends with the test.
func startAdvisory(t *testing.T, url string, opts ...Option) *advisor {
	t.Helper()
	a := launchAdvisory(t, url, new(atomic.Int64), opts...)
	t.Cleanup(func() { a.Close() })
	return a
}

// unhurried is the lease TTL of a process that is to keep its lease on a machine that is busy.
const unhurried = time.Minute

func (a *advisor) at(t *testing.T, path string) second.Claim {
	t.Helper()
	c, err := a.Claim(path, second.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (a *advisor) mustAcquire(t *testing.T, path string) second.Grant {
	t.Helper()
	g, err := a.at(t, path).Acquire(soon(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// waitAt begins an acquisition and returns when its session waits.
func (a *advisor) waitAt(t *testing.T, path string) (granted <-chan second.Grant, cancel func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(soon(t))
	result := make(chan second.Grant, 1)
	claim := a.at(t, path)
	go func() {
		defer close(result)
		if g, err := claim.Acquire(ctx, nil); err == nil {
			result <- g
		}
	}()
	t.Cleanup(func() {
		cancel()
		for range result {
		}
	})
	eventually(t, "somebody waits", func() bool { return waiters(t, path) > 0 })
	return result, cancel
}

// waiters is how many wait at the shared server.
func waiters(t *testing.T, path string) int64 {
	t.Helper()
	return number(t, outside(t), "SELECT count(*) FROM pg_locks WHERE NOT granted AND "+ofLock, advisory.KeyOf(path))
}

func number(t *testing.T, q querier, sql string, args ...any) (n int64) {
	t.Helper()
	if err := q.QueryRow(soon(t), sql, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// migrated returns a pool at servers that have the schema.
func migrated(t *testing.T, addrs ...string) *pgxpool.Pool {
	t.Helper()
	pool := poolAt(t, pgserver.PlainURL(addrs...), nil)
	t.Cleanup(pool.Close)
	if err := Migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	return pool
}

// silentHolder has a lock and is cut off: nobody tells it anything any more.
func silentHolder(t *testing.T, url, path string) (holder *advisor, g second.Grant) {
	t.Helper()
	holder = startAdvisory(t, url)
	g = holder.mustAcquire(t, path)
	t.Cleanup(holder.line.sever())
	return holder, g
}

// heir acquires the lock of one that is cut off, and checks that this knows of its loss before.
func heir(t *testing.T, url, path string, g second.Grant) {
	t.Helper()
	next := startAdvisory(t, url)
	granted := func(mine second.Grant, how string) {
		if err := g.Err(); !errors.Is(err, second.ErrLost) {
			t.Errorf("%s is granted the lock while the holder has it: %v", how, err)
		}
		if mine.Token() <= g.Token() {
			t.Errorf("token %d after %d", mine.Token(), g.Token())
		}
		mustRelease(t, mine)
	}
	if mine, err := next.at(t, path).TryAcquire(soon(t)); err == nil {
		granted(mine, "a try")
	}
	granted(next.mustAcquire(t, path), "who waits")
}

func TestPromotedStandbyGrantsNothingForALease(t *testing.T) {
	t.Parallel()
	e := pgservertest.StartEnsemble(t, 2, pgserver.Config{NoSync: true})
	migrated(t, e.Members[0].Addr())
	_, g := silentHolder(t, pgserver.PlainURL(e.Members[0].Addr()), lockPath(t))
	replicated(t, e)
	e.Members[0].Kill()
	if err := e.Promote(t.Context(), e.Members[1]); err != nil {
		t.Fatal(err)
	}
	heir(t, pgserver.PlainURL(e.Members[1].Addr()), lockPath(t), g)
}

func TestRestartedServerGrantsNothingForALease(t *testing.T) {
	t.Parallel()
	s := pgservertest.Start(t, pgserver.Config{NoSync: true})
	migrated(t, s.Addr())
	_, g := silentHolder(t, pgserver.PlainURL(s.Addr()), lockPath(t))
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	heir(t, pgserver.PlainURL(s.Addr()), lockPath(t), g)
}

// Nothing that was granted has reached the disk.
func TestTokensGrowOverACrash(t *testing.T) {
	t.Parallel()
	s := pgservertest.Start(t, pgserver.Config{NoSync: true, Settings: []string{"wal_writer_delay = '10s'"}})
	migrated(t, s.Addr())
	url := pgserver.PlainURL(s.Addr()) + "&synchronous_commit=off"
	for earlier := startAdvisory(t, url); ; {
		g := earlier.mustAcquire(t, lockPath(t))
		mustRelease(t, g)
		if g.Token() >= 20 {
			break
		}
	}
	_, g := silentHolder(t, url, lockPath(t))
	s.Kill()
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	heir(t, url, lockPath(t), g)
}

// The server goes on, as the same postmaster on the same timeline, but its lock table is a new one.
func TestServerAfterACrashOfOneProcessGrantsNothingForALease(t *testing.T) {
	t.Parallel()
	s := pgservertest.Start(t, pgserver.Config{NoSync: true})
	pool := migrated(t, s.Addr())
	_, g := silentHolder(t, pgserver.PlainURL(s.Addr()), lockPath(t))
	victim, err := os.FindProcess(int(number(t, pool, "SELECT pg_backend_pid()")))
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server serves again", func() bool {
		conn, err := pgx.Connect(t.Context(), pgserver.PlainURL(s.Addr()))
		if err != nil {
			return false
		}
		defer conn.Close(t.Context())
		return conn.PgConn().PID() != 0
	})
	heir(t, pgserver.PlainURL(s.Addr()), lockPath(t), g)
}

// Not promised: nobody but a fence can stop a primary that goes on.
func TestIsolatedPrimaryKeepsItsHolder(t *testing.T) {
	t.Parallel()
	e := pgservertest.StartEnsemble(t, 2, pgserver.Config{NoSync: true})
	migrated(t, e.Members[0].Addr())
	g := startAdvisory(t, pgserver.PlainURL(e.Members[0].Addr()), WithLeaseTTL(3*ttl)).mustAcquire(t, lockPath(t))
	replicated(t, e)
	e.Isolate(e.Members[0])
	if err := e.Promote(t.Context(), e.Members[1]); err != nil {
		t.Fatal(err)
	}
	other := startAdvisory(t, pgserver.PlainURL(e.Members[1].Addr())).mustAcquire(t, lockPath(t))
	if err := g.Err(); err != nil {
		t.Errorf("the holder at the isolated primary: %v; is it promised now?", err)
	}
	mustRelease(t, other)
	mustRelease(t, g)
}

// replicated waits until the standby has all that the primary wrote.
func replicated(t *testing.T, e *pgserver.Ensemble) {
	t.Helper()
	pool := poolAt(t, pgserver.URL(e.Members[0].Addr()), nil)
	defer pool.Close()
	eventually(t, "the standby has everything", func() bool {
		return number(t, pool, "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn = pg_current_wal_lsn()") == 1
	})
}

func TestStandbyGrantsNothing(t *testing.T) {
	t.Parallel()
	e := pgservertest.StartEnsemble(t, 2, pgserver.Config{NoSync: true})
	migrated(t, e.Members[0].Addr())
	replicated(t, e)
	pool := poolAt(t, pgserver.PlainURL(e.Members[1].Addr()), nil)
	t.Cleanup(pool.Close)
	locks, err := NewAdvisory(pool, WithLeaseTTL(ttl))
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	ctx, cancel := context.WithTimeout(t.Context(), ttl/2)
	defer cancel()
	if _, err := locks.Mutex(lockPath(t)).Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Acquire at a standby: %v, want to wait for a primary", err)
	}
}

// Not promised: short waits only.
func TestWaiterHoldsASnapshot(t *testing.T) {
	t.Parallel()
	server(t)
	url := pgserver.PlainURL(shared.server.Addr())
	g := startAdvisory(t, url, WithLeaseTTL(unhurried)).mustAcquire(t, lockPath(t))
	granted, _ := startAdvisory(t, url, WithLeaseTTL(unhurried)).waitAt(t, lockPath(t))
	const xmins = "SELECT count(*) FROM pg_stat_activity JOIN pg_locks USING (pid) WHERE backend_xmin IS NOT NULL AND granted = $2 AND "
	pool := poolAt(t, pgserver.URL(shared.server.Addr()), nil)
	defer pool.Close()
	const inPlain = "(classid::bigint << 32) | objid::bigint = $1"
	if n := number(t, pool, xmins+inPlain, advisory.KeyOf(lockPath(t)), false); n != 1 {
		t.Errorf("%d of one waiter hold a snapshot; is it promised now that they do not?", n)
	}
	if n := number(t, pool, xmins+inPlain, advisory.KeyOf(lockPath(t)), true); n != 0 {
		t.Errorf("the holder holds a snapshot")
	}
	mustRelease(t, g)
	mustRelease(t, <-granted)
}

// The server's process that waits reads nothing: without client_connection_check_interval it would wait for its turn.
func TestWaiterWhoseClientIsGoneLeavesTheQueue(t *testing.T) {
	t.Parallel()
	server(t)
	url := pgserver.PlainURL(shared.server.Addr())
	g := startAdvisory(t, url, WithLeaseTTL(unhurried)).mustAcquire(t, lockPath(t))
	gone := startAdvisory(t, url)
	gone.waitAt(t, lockPath(t))
	begun := time.Now()
	gone.line.close() // as a process that is killed: it cancels nothing
	eventually(t, "nobody waits", func() bool { return waiters(t, lockPath(t)) == 0 })
	if took := time.Since(begun); took > ttl {
		t.Errorf("the waiter was gone after %v", took)
	}
	mustRelease(t, g)
}

// What is answered last tells whether the session ends when it should.
func TestSessionThatWouldNotEndIsRefused(t *testing.T) {
	t.Parallel()
	server(t)
	config, err := pgxpool.ParseConfig(pgserver.PlainURL(shared.server.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "SET idle_session_timeout = 0")
		return err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	locks, err := NewAdvisory(pool)
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	if _, err := locks.Mutex(lockPath(t)).Acquire(soon(t)); !errors.Is(err, advisory.ErrNoLease) {
		t.Errorf("Acquire: %v, want ErrNoLease", err)
	}
}

func TestAdvisoryLockOfAnotherProgramExcludes(t *testing.T) {
	t.Parallel()
	a := startAdvisory(t, pgserver.PlainURL(server(t).Addr()), WithLeaseTTL(unhurried)) // a try gives up a server that is slow for a sixth of it
	conn, err := pgx.Connect(t.Context(), pgserver.PlainURL(server(t).Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	key := `SELECT pg_advisory_lock(('x' || left(encode(sha256(convert_to('tierlock:` + lockPath(t) + `', 'UTF8')), 'hex'), 16))::bit(64)::bigint)`
	if _, err := conn.Exec(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	claim := a.at(t, lockPath(t))
	if _, err := claim.TryAcquire(t.Context()); !errors.Is(err, second.ErrLocked) {
		t.Errorf("TryAcquire: %v, want ErrLocked", err)
	}
	if err := claim.Revoke(t.Context()); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Revoke: %v, want ErrUnsupported", err)
	}
	queue, err := claim.Contenders(t.Context())
	if err != nil || len(queue) != 1 || queue[0].ID != strconv.Itoa(int(conn.PgConn().PID())) {
		t.Errorf("Contenders: %+v, %v, want process %d", queue, err, conn.PgConn().PID())
	}
}

func TestAdvisoryHasNoSemaphore(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), "postgres://127.0.0.1:1/x")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	locks, err := NewAdvisory(pool)
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	if _, err := locks.Semaphore("/x", 3).Acquire(t.Context(), 1); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "pglock.New") {
		t.Errorf("Semaphore: %v, want ErrUnsupported, and where there are some", err)
	}
	if _, err := NewAdvisory(nil); err == nil {
		t.Error("NewAdvisory without a pool")
	}
	if _, err := NewAdvisory(pool, WithLeaseTTL(time.Millisecond)); err == nil {
		t.Error("NewAdvisory with a TTL of 1 ms")
	}
	if _, err := NewAdvisory(pool, tier.WithHandOff(-1)); err == nil {
		t.Error("NewAdvisory with a negative hand-off")
	}
}

// Not promised, for the same reason.
func TestWaiterHoldsUpAnIndexThatIsCreatedConcurrently(t *testing.T) {
	t.Parallel()
	table := table(t)
	url := pgserver.PlainURL(server(t).Addr())
	g := startAdvisory(t, url, WithLeaseTTL(unhurried)).mustAcquire(t, lockPath(t))
	granted, _ := startAdvisory(t, url, WithLeaseTTL(unhurried)).waitAt(t, lockPath(t))
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	created := make(chan error, 1)
	go func() {
		_, err := conn.Exec(soon(t), "CREATE INDEX CONCURRENTLY ON "+table+" (n)")
		created <- err
	}()
	eventually(t, "the index waits for a snapshot", func() bool {
		select {
		case err := <-created:
			t.Fatalf("the index was created (%v); is it promised now?", err)
		default:
		}
		return number(t, outside(t), "SELECT count(*) FROM pg_stat_progress_create_index WHERE phase LIKE 'waiting for old snapshots'") > 0
	})
	mustRelease(t, g)
	mustRelease(t, <-granted)
	if err := <-created; err != nil {
		t.Errorf("the index, once nobody waits: %v", err)
	}
}

// A wait that is cancelled costs no connection.
func TestCancelledWaiterKeepsItsSession(t *testing.T) {
	t.Parallel()
	url := pgserver.PlainURL(server(t).Addr())
	g := startAdvisory(t, url, WithLeaseTTL(unhurried)).mustAcquire(t, lockPath(t))
	waiter := startAdvisory(t, url, WithLeaseTTL(unhurried), WithLabel("C"))
	var pids []string
	for range 3 {
		granted, cancel := waiter.waitAt(t, lockPath(t))
		queue, err := waiter.at(t, lockPath(t)).Contenders(soon(t))
		if err != nil || len(queue) != 2 {
			t.Fatalf("Contenders: %+v, %v", queue, err)
		}
		pids = append(pids, queue[1].ID)
		cancel()
		if g, ok := <-granted; ok {
			t.Fatalf("granted with token %d", g.Token())
		}
		eventually(t, "nobody waits", func() bool { return waiters(t, lockPath(t)) == 0 })
	}
	// One of them may have been that of Contenders meanwhile.
	if slices.Sort(pids); len(slices.Compact(pids)) > 2 {
		t.Errorf("three waits in the sessions %v", pids)
	}
	mustRelease(t, g)
}

// A session keeps what it was granted right before the statement that waited was cancelled.
func TestWaitThatIsCancelledOnceItIsGrantedLeavesNothing(t *testing.T) {
	t.Parallel()
	s := pgservertest.Start(t, pgserver.Config{NoSync: true})
	pool := migrated(t, s.Addr())
	url, path := pgserver.PlainURL(s.Addr()), lockPath(t)
	g := startAdvisory(t, url, WithLeaseTTL(unhurried)).mustAcquire(t, path)
	seen := func(granted bool) int64 {
		return number(t, pool, "SELECT count(*) FROM pg_locks WHERE granted = $2 AND "+ofLock, advisory.KeyOf(path), granted)
	}
	ctx, cancel := context.WithCancel(soon(t))
	defer cancel()
	waiter := startAdvisory(t, url, WithLeaseTTL(unhurried)).at(t, path) // for half of which it would be kept
	result := make(chan error, 1)
	go func() {
		_, err := waiter.Acquire(ctx, nil)
		result <- err
	}()
	eventually(t, "somebody waits", func() bool { return seen(false) == 1 })

	numbers, err := pool.Begin(soon(t)) // nobody draws a token meanwhile
	if err != nil {
		t.Fatal(err)
	}
	defer numbers.Rollback(context.Background())
	if _, err := numbers.Exec(soon(t), "ALTER SEQUENCE tierlock.token CACHE 1"); err != nil {
		t.Fatal(err)
	}
	mustRelease(t, g)
	eventually(t, "the next one is granted the lock, and draws its token", func() bool { return seen(true) == 1 && seen(false) == 0 })
	cancel()
	wantErr(t, <-result, context.Canceled)
	eventually(t, "nobody has the lock", func() bool { return seen(true) == 0 })
}
