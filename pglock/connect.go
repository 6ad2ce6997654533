package pglock

import (
	"cmp"
	"context"
	"errors"
	"net"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// maxRequests is how many requests are sent at a time. Each is over when its transaction is.
const maxRequests = 4

// settings are those of a session that must not be the role's. A path has to be the same text for all,
// times have to be readable, and a connection is idle between two renewals. Each statement is planned once, to find rows by an
// index: the tables look small, but what was deleted there stays for a while. Not all versions have the last setting.
const settings = `SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;
	SET client_encoding = 'UTF8'; SET datestyle = 'ISO';
	SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_bitmapscan = off; SET jit = off;
	SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'idle_session_timeout'`

// configLike says how to connect: as the program's pool does, until wires ends, and what more to say first.
func configLike(wires context.Context, pool *pgxpool.Pool, more func(context.Context, *pgx.Conn) error) *pgxpool.Config {
	c := pool.Config()
	c.ConnConfig.DialFunc = dialUntil(wires, c.ConnConfig.DialFunc)
	greet := c.AfterConnect
	c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if err := checkPooler(ctx, conn); err != nil {
			return err
		}
		if greet != nil {
			if err := greet(ctx, conn); err != nil {
				return err
			}
		}
		return more(ctx, conn)
	}
	return c
}

// requestsLike is for requests, each of which is one round trip: what is prepared for it is so when the connection is new, and no
// connection is tried out before.
func requestsLike(wires context.Context, pool *pgxpool.Pool) *pgxpool.Config {
	c := configLike(wires, pool, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, settings)
		return err
	})
	c.MaxConns, c.MinConns, c.MinIdleConns = maxRequests, 0, 0
	c.PrepareConn = func(ctx context.Context, conn *pgx.Conn) (bool, error) {
		_, err := conn.Prepare(ctx, enterSQL, enterSQL) // once on a connection: to plan it takes longer than to execute it
		if err == nil {
			_, err = conn.Prepare(ctx, leaveSQL, leaveSQL)
		}
		return err == nil, err
	}
	c.BeforeAcquire, c.AfterRelease, c.BeforeClose = nil, nil, nil //nolint:staticcheck // it may be set
	c.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	return c
}

// dialUntil makes connections that end with wires, whatever is under way: the driver takes up to 15 s to
// close one in the middle of a request.
func dialUntil(wires context.Context, dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(wires, cancel)()
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &wire{Conn: conn, stop: context.AfterFunc(wires, func() { conn.Close() })}, nil
	}
}

type wire struct {
	net.Conn
	stop func() bool
}

func (w *wire) Close() error {
	w.stop()
	return w.Conn.Close()
}

// errPooler says that connections do not have a session each.
var errPooler = errors.New("a pooler in between gives each transaction to any session of the server, as PgBouncer does with " +
	"pool_mode=transaction; connect to the server itself, or to a pool with pool_mode=session")

// checkPooler returns errPooler if what is said on a connection is not said in one session of the server. It sets nothing
// there, which somebody else's transactions would get.
//
// A pooler has made up the number by which a client asks for requests to be cancelled, which is that of the server's
// process for a client that has one. Behind one, another client either gets the same process while the first is
// there, or keeps that busy, so that the first gets another one; what others do there at the time may hide that, but not each time.
func checkPooler(ctx context.Context, conn *pgx.Conn) error {
	own, err := backend(ctx, conn)
	if err != nil || own == conn.PgConn().PID() {
		return err
	}
	other, err := pgx.ConnectConfig(ctx, conn.Config())
	if err != nil {
		return err
	}
	defer other.Close(ctx)
	for range 30 {
		if err := checkApart(ctx, conn, own, other); err != nil {
			return err
		}
	}
	return nil
}

// checkApart returns errPooler if the process of a connection, which was own, also serves another one, or has changed.
func checkApart(ctx context.Context, conn *pgx.Conn, own uint32, other *pgx.Conn) error {
	tx, err := other.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx)
	if theirs, err := backend(ctx, tx); err != nil || theirs == own {
		return cmp.Or(err, errPooler)
	}
	if now, err := backend(ctx, conn); err != nil || now != own {
		return cmp.Or(err, errPooler)
	}
	return nil
}

// A querier is a connection, a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// backend asks which process of the server it is.
func backend(ctx context.Context, q querier) (pid uint32, err error) {
	err = q.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeExec).Scan(&pid)
	return pid, err
}
