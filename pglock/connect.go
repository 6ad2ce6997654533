package pglock

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// maxRequests is how many requests can be in progress at the same time. Each of them has a connection until its transaction has ended.
const maxRequests = 4

// The map forAll has the settings of every session. They override the settings of the role, of the URL, and of a hook of the pool. With
// these settings, a path is the same text for all processes, and times can be parsed. Each statement sees what was committed before it. The
// time of a statement has no limit by default.
var forAll = map[string]string{
	"client_encoding":               "UTF8",
	"datestyle":                     "ISO",
	"search_path":                   "pg_catalog, pg_temp",
	"default_transaction_isolation": "read committed",
	"default_transaction_read_only": "off",
	"statement_timeout":             "0",
	"transaction_timeout":           "0", // since PostgreSQL 17
}

// forTables returns the settings for locks in tables. A connection is idle between two renewals, so the server must not end idle sessions.
//
// Statements are planned once, and use an index. The planner might prefer a full scan because the tables look small, but deleted rows
// remain in them for a while.
//
// A statement may have to wait for another transaction. The server then refuses it before the client gives up ([queue.Tier.Patience]). The
// client therefore does not conclude that the server cannot be reached. And the server never executes a statement after its client has
// given up.
func forTables(ttl time.Duration) map[string]string {
	settings := map[string]string{
		"idle_session_timeout": "0",
		"lock_timeout":         milliseconds(max(ttl/8, 375*time.Millisecond)),
		"plan_cache_mode":      "force_generic_plan", "enable_seqscan": "off", "enable_bitmapscan": "off", "jit": "off",
	}
	maps.Copy(settings, forAll)
	return settings
}

// impose sets the settings that the locks depend on. It leaves out settings that the server's version does not have.
func impose(ctx context.Context, conn *pgx.Conn, settings map[string]string) error {
	names, values := make([]string, 0, len(settings)), make([]string, 0, len(settings))
	for name, value := range settings {
		names, values = append(names, name), append(values, value)
	}
	_, err := conn.Exec(ctx, "SELECT set_config(s.name, v.value, false) FROM unnest($1::text[], $2::text[]) v (name, value) "+
		"JOIN pg_settings s ON lower(s.name) = v.name", pgx.QueryExecModeExec, names, values)
	return err
}

// configLike returns a configuration that connects in the same way as the program's pool. The connections are closed when wires ends. The
// settings that the locks depend on are set after the pool's hooks have run, and more is called last. Each step is one round trip, because
// the time for one request has to suffice to connect to a distant server.
func configLike(wires context.Context, pool *pgxpool.Pool, settings map[string]string, more func(context.Context, *pgx.Conn) error,
) *pgxpool.Config {
	c := pool.Config()
	c.ConnConfig.DialFunc = dialUntil(wires, c.ConnConfig.DialFunc)
	greet := c.AfterConnect
	c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if err := examine(ctx, conn); err != nil {
			return err
		}
		if greet != nil {
			if err := greet(ctx, conn); err != nil {
				return err
			}
		}
		if err := impose(ctx, conn, settings); err != nil {
			return err
		}
		return more(ctx, conn)
	}
	return c
}

// examine returns an error for a server or a pooler with which the locks do not work.
func examine(ctx context.Context, conn *pgx.Conn) error {
	var text string
	if err := conn.QueryRow(ctx, "SELECT pg_backend_pid() || ' ' || version()", pgx.QueryExecModeExec).Scan(&text); err != nil {
		return err
	}
	if err := checkVersion(text); err != nil {
		return err
	}
	process, _, _ := strings.Cut(text, " ")
	own, err := strconv.ParseUint(process, 10, 32)
	if err != nil {
		return err
	}
	return checkPooler(ctx, conn, uint32(own))
}

// requestsLike returns the configuration of the pool for requests. Each request takes one round trip. For that, statements are prepared
// when a connection is new, and connections are not pinged before use.
func requestsLike(wires context.Context, pool *pgxpool.Pool, ttl time.Duration) *pgxpool.Config {
	c := configLike(wires, pool, forTables(ttl), func(context.Context, *pgx.Conn) error { return nil })
	c.MaxConns, c.MinConns, c.MinIdleConns = maxRequests, 0, 0
	c.PrepareConn = func(ctx context.Context, conn *pgx.Conn) (bool, error) {
		_, err := conn.Prepare(ctx, enterSQL, enterSQL) // only once for each connection, because planning takes longer than execution
		if err == nil {
			_, err = conn.Prepare(ctx, leaveSQL, leaveSQL)
		}
		return err == nil, err
	}
	// The program's pool may set the deprecated BeforeAcquire.
	c.BeforeAcquire, c.AfterRelease, c.BeforeClose = nil, nil, nil //nolint:staticcheck
	c.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	return c
}

// dialUntil returns a function that opens connections, which are closed when wires ends. This interrupts a request, too. The driver alone
// would take up to 15 s to close a connection during a request.
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

// errPooler means that a pooler shares server sessions between connections.
var errPooler = errors.New("a pooler in between gives each transaction to any session of the server, as PgBouncer does with " +
	"pool_mode=transaction; connect to the server directly, or to a pool with pool_mode=session")

// checkPooler returns errPooler if requests on one connection do not all reach the same server session. It changes no setting of a session,
// because a pooler may give that session to another program next.
//
// The cancellation key of a direct connection has the process ID of its server process. A pooler invents such numbers. If the numbers
// differ, checkPooler tries a second connection. Behind a pooler that shares sessions, the second connection may get the server process of
// the first one while that is idle. Or the second connection keeps that process busy, so that the first one gets another process. Traffic
// of other programs may hide this, but not in every try.
func checkPooler(ctx context.Context, conn *pgx.Conn, own uint32) error {
	if own == conn.PgConn().PID() {
		return nil
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

// checkApart returns errPooler if the server process own, which has served conn, also serves the other connection. It also returns
// errPooler if another server process serves conn now.
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

// addresses returns the addresses of the servers to which a pool connects.
func addresses(pool *pgxpool.Pool) string {
	c := pool.Config().ConnConfig
	_, first := pgconn.NetworkAddress(c.Host, c.Port)
	all := []string{first}
	for _, f := range c.Fallbacks { // may name each server a second time, without TLS
		if _, next := pgconn.NetworkAddress(f.Host, f.Port); !slices.Contains(all, next) {
			all = append(all, next)
		}
	}
	return strings.Join(all, ", ")
}

// A querier is a connection, a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// backend returns the process ID of the server process that executes its query.
func backend(ctx context.Context, q querier) (pid uint32, err error) {
	err = q.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeExec).Scan(&pid)
	return pid, err
}
