package pglock

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tierlock/tierlock/internal/pgserver"
	"github.com/tierlock/tierlock/internal/pgserver/pgservertest"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/tiertest"
)

func TestTier(t *testing.T) {
	e := pgservertest.StartEnsemble(t, 3, pgserver.Config{NoSync: true, Synchronous: true})
	url := pgserver.PlainURL(e.Addrs()...)
	pool := poolAt(t, url, nil)
	if err := Migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), countWrites); err != nil {
		t.Fatal(err)
	}
	pool.Close()
	tiertest.Run(t, func(t *testing.T, test func(*testing.T, tiertest.Harness)) {
		test(t, ensembleHarness(t, e, url))
	}).Record(t, "PostgreSQL", "../docs/promises/postgres.md")
}

// countWrites notes each transaction that changes a queue.
const countWrites = `
	CREATE TABLE writes (transaction xid8 PRIMARY KEY);
	CREATE FUNCTION count_write() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.writes VALUES (pg_current_xact_id()) ON CONFLICT DO NOTHING;
		RETURN NULL;
	END $$;
	CREATE TRIGGER count AFTER INSERT OR UPDATE OR DELETE ON tierlock.contender FOR EACH ROW EXECUTE FUNCTION count_write();`

// ensembleHarness is a primary and standbys, of which one at least has each write that is acknowledged.
func ensembleHarness(t *testing.T, e *pgserver.Ensemble, url string) tiertest.Harness {
	ctx := t.Context()
	check := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	o := &operator{url: url}
	t.Cleanup(o.leave)
	do := func(sql string, args ...any) (int64, error) { return o.do(soon(t), sql, args...) }
	left := func(path string) int {
		return o.look(ctx, "SELECT count(*) FROM tierlock.contender WHERE path = $1", path)
	}
	return tiertest.Harness{
		Lease: 3 * time.Second,
		Dial: func(tb testing.TB, lease time.Duration) *tiertest.Process {
			return launch(tb, url, WithLeaseTTL(lease)).forSuite()
		},
		Left:        left,
		LeftPermits: func(path string) int { return left(at(queue.Ref{Path: path, Permits: 1}).Path) },
		Writes: func() int64 {
			n, err := do("SELECT count(*) FROM writes")
			check(err)
			return n
		},
		Remove: func(path string, i int) {
			n, err := do(`WITH gone AS (DELETE FROM tierlock.contender WHERE path = $1 AND token =
				(SELECT token FROM tierlock.contender WHERE path = $1 ORDER BY token OFFSET $2 LIMIT 1) RETURNING 1) SELECT count(*) FROM gone`, path, i)
			if err == nil && n == 0 {
				err = errors.New("nobody there")
			}
			check(err)
		},
		Freeze: func() (thaw func()) {
			check(e.Pause())
			return func() { check(e.Resume()) }
		},
		Failover: func() { check(e.Failover(ctx)) },
		Forgets:  true,
		Restart:  func() { check(e.Restart(ctx)) },
	}
}

// An operator looks from outside the library. No goroutine is theirs, as tests count those.
type operator struct {
	url string

	mu   sync.Mutex // guards the field below
	conn *pgx.Conn  // nil until it is needed
}

// look is do for one who looks again if there is no answer soon, which is a negative number.
func (o *operator) look(ctx context.Context, sql string, args ...any) int {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	n, err := o.do(ctx, sql, args...)
	if err != nil {
		return -1
	}
	return int(n)
}

// do returns the number that a query does.
func (o *operator) do(ctx context.Context, sql string, args ...any) (number int64, err error) {
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

func (o *operator) leave() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.conn != nil {
		o.conn.Close(context.Background())
	}
}
