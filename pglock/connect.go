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

// maxRequests is how many requests are sent at a time. Each is over when its transaction is.
const maxRequests = 4

// forAll are the settings of every session, whatever the role, the URL or a hook of the pool has set. A path has to be the same text for
// all, times have to be readable, each statement sees what was committed before it, and nothing but the lock and the network bounds how
// long one takes.
var forAll = map[string]string{
	"client_encoding":               "UTF8",
	"datestyle":                     "ISO",
	"search_path":                   "pg_catalog, pg_temp",
	"default_transaction_isolation": "read committed",
	"default_transaction_read_only": "off",
	"statement_timeout":             "0",
	"transaction_timeout":           "0", // since PostgreSQL 17
}

// forTables are the settings for locks in tables. A connection is idle between two renewals. Each statement is planned once, to find rows
// by an index: the tables look small, but what was deleted there stays for a while. The server refuses a
// statement that waits for another transaction before its client gives up ([queue.Tier.Patience]). So the client does not take the server
// for unreachable, and the server executes nothing that no client waits for.
func forTables(ttl time.Duration) map[string]string {
	settings := map[string]string{
		"idle_session_timeout": "0",
		"lock_timeout":         milliseconds(max(ttl/8, 375*time.Millisecond)),
		"plan_cache_mode":      "force_generic_plan", "enable_seqscan": "off", "enable_bitmapscan": "off", "jit": "off",
	}
	maps.Copy(settings, forAll)
	return settings
}

// impose sets what the locks depend on, as far as the version of the server has it.
func impose(ctx context.Context, conn *pgx.Conn, settings map[string]string) error {
	names, values := make([]string, 0, len(settings)), make([]string, 0, len(settings))
	for name, value := range settings {
		names, values = append(names, name), append(values, value)
	}
	_, err := conn.Exec(ctx, "SELECT set_config(s.name, v.value, false) FROM unnest($1::text[], $2::text[]) v (name, value) "+
		"JOIN pg_settings s ON lower(s.name) = v.name", pgx.QueryExecModeExec, names, values)
	return err
}

// configLike says how to connect: as the program's pool does, until wires ends. The settings that the locks depend on are made after its
// hooks. Each step is one round trip: a distant server has to be connected to within the time for one request.
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

// examine refuses servers and poolers that locks cannot use.
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

// requestsLike is for requests, each of which is one round trip: what is prepared for it is so when the connection is new, and no
// connection is tried out before.
func requestsLike(wires context.Context, pool *pgxpool.Pool, ttl time.Duration) *pgxpool.Config {
	c := configLike(wires, pool, forTables(ttl), func(context.Context, *pgx.Conn) error { return nil })
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

// addresses are those of the servers that a pool names.
func addresses(pool *pgxpool.Pool) string {
	c := pool.Config().ConnConfig
	_, first := pgconn.NetworkAddress(c.Host, c.Port)
	all := []string{first}
	for _, f := range c.Fallbacks { // each server once more without TLS
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

// backend asks which process of the server it is.
func backend(ctx context.Context, q querier) (pid uint32, err error) {
	err = q.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeExec).Scan(&pid)
	return pid, err
}
