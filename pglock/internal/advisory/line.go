package advisory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tierlock/tierlock/internal/second"
)

// A line is one connection, whose session the server ends when it has been idle for the TTL. One at a time talks on it; while nobody
// does, somebody may listen.
type line struct {
	conn  *pgx.Conn
	wire  net.Conn // below pgx, for deadlines of our own: with a context, pgx starts a goroutine for each request
	pid   string   // of the server's process
	bound time.Duration

	calling atomic.Bool   // further dials, of requests to cancel, are permitted
	turn    chan struct{} // has whoever talks or listens
	dying   func(error)   // called before the driver closes the connection as a context has ended; of whoever talks
	spare   time.Time     // since when nobody uses it; guarded by the store

	mu        sync.Mutex // guards the fields below
	wanted    int        // so many want to talk
	listening bool
	next      time.Time // when the listener is to do something else
	closed    error     // wraps errDropped, and why; nil as long as it is open
}

// dial makes a connection, and notes what the server says of its quarantine.
func (s *Store) dial(ctx context.Context) (*line, error) {
	c, sent := s.config, time.Now()
	l := &line{turn: make(chan struct{}, 1), bound: s.tier.Patience()}
	pool := c.Pool.Config()
	config := pool.ConnConfig
	config.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) { s.told(n) }
	l.calling.Store(true)
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if !l.calling.Load() {
			return nil, errors.New("pgx wants to cancel what is over")
		}
		return dial(ctx, network, addr)
	}
	config.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &watcher{pgconn.DeadlineContextWatcherHandler{Conn: conn.Conn()}, l}
	}
	ms := milliseconds(c.TTL)
	seconds := strconv.FormatInt(int64((c.TTL+time.Second-1)/time.Second), 10)
	maps.Copy(config.RuntimeParams, map[string]string{
		"application_name":                    "tierlock",
		"idle_session_timeout":                ms,
		"idle_in_transaction_session_timeout": ms,
		"statement_timeout":                   "0", // a wait is one
		"lock_timeout":                        "0",
		"default_transaction_read_only":       "off",
		// A peer that has fallen silent is noticed, but not before its lease is over.
		"tcp_user_timeout":        ms,
		"tcp_keepalives_idle":     seconds,
		"tcp_keepalives_interval": "1",
		"tcp_keepalives_count":    "3",
	})
	ctx, cancel := context.WithTimeout(ctx, l.bound)
	defer cancel()
	conn, err := Connect(ctx, pool, c.CheckSchema, func(ctx context.Context, conn *pgx.Conn) error { return s.prepare(ctx, conn, sent) })
	var refusal *pgconn.PgError
	if errors.As(err, &refusal) && strings.HasPrefix(refusal.Message, "unsupported startup parameter") { // says PgBouncer
		err = fmt.Errorf("%w: %w", ErrNoLease, err)
	}
	if err != nil {
		return nil, err
	}
	l.conn, l.wire, l.pid = conn, conn.PgConn().Conn(), fmt.Sprint(conn.PgConn().PID())
	l.calling.Store(false)
	return l, nil
}

// Connect makes a connection like those of a pool, which is in none, and has it greeted by more than the pool's hook.
func Connect(ctx context.Context, pool *pgxpool.Config, more ...func(context.Context, *pgx.Conn) error) (*pgx.Conn, error) {
	if pool.BeforeConnect != nil {
		if err := pool.BeforeConnect(ctx, pool.ConnConfig); err != nil {
			return nil, err
		}
	}
	conn, err := pgx.ConnectConfig(ctx, pool.ConnConfig)
	if err != nil {
		return nil, err
	}
	if pool.AfterConnect != nil {
		more = slices.Insert(more, 0, pool.AfterConnect)
	}
	for _, greet := range more {
		if err := greet(ctx, conn); err != nil {
			conn.Close(ctx)
			return nil, err
		}
	}
	return conn, nil
}

// A watcher is that of the driver, which closes a connection with which it was busy when a context ended.
type watcher struct {
	pgconn.DeadlineContextWatcherHandler
	line *line
}

func (w *watcher) HandleCancel(ctx context.Context) {
	if w.line.dying != nil {
		w.line.dying(context.Cause(ctx))
	}
	w.DeadlineContextWatcherHandler.HandleCancel(ctx)
}

// prepare has the session know our statements, and asks how long the quarantine lasts.
func (s *Store) prepare(ctx context.Context, conn *pgx.Conn, sent time.Time) error {
	// A session that waits is not idle: only this tells that its client is gone, on systems that can.
	conn.PgConn().Exec(ctx, "SET client_connection_check_interval = "+milliseconds(min(s.config.TTL/8, time.Second))).Close()
	setup := "SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'transaction_timeout'" // not all versions have it
	for name, statement := range statements {
		setup += fmt.Sprintf("; PREPARE %q AS %s", name, statement)
	}
	if err := conn.PgConn().Exec(ctx, setup).Close(); err != nil {
		return err
	}
	var calm time.Duration
	var granted string
	const both = "SELECT tierlock.quiet_ms('advisory', $1), setting FROM pg_settings WHERE name = 'idle_session_timeout'"
	err := conn.QueryRow(ctx, both, pgx.QueryExecModeExec, s.config.TTL.Milliseconds()).Scan(&calm, &granted)
	if want := milliseconds(s.config.TTL); err == nil && granted != want {
		err = fmt.Errorf("%w: it is %s ms where %s was asked for", ErrNoLease, granted, want)
	}
	if err == nil {
		s.tier.Quarantined(calm*time.Millisecond, sent, "the server was started or promoted, and first used less than a lease ago")
	}
	return err
}

// ErrNoLease says that the server would not end an idle session in time.
var ErrNoLease = errors.New("the session does not have the idle_session_timeout that was asked for: " +
	"a pooler in between, such as PgBouncer, does not pass it on, or a hook of the pool has changed it; connect to the server itself")

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// answer reads what the statements up to the next sync have answered, and returns the last rows.
func answer(p *pgconn.Pipeline) (rows [][][]byte, failure error) {
	for {
		results, err := p.GetResults()
		switch r := results.(type) {
		case *pgconn.PipelineSync:
			return rows, failure
		case *pgconn.ResultReader:
			result := r.Read()
			rows, failure = result.Rows, cmp.Or(failure, result.Err)
		default:
			if failure = cmp.Or(err, errDropped); !refused(err) {
				return nil, failure
			}
		}
	}
}

// A call is a prepared statement with its parameters.
type call []string

func (c call) values() (values [][]byte) {
	for _, arg := range c[1:] {
		values = append(values, []byte(arg))
	}
	return values
}

// ask sends one statement, which does not wait, and returns its answer. Whoever calls it has the turn.
func (l *line) ask(bound time.Duration, c call) ([][][]byte, error) {
	l.wire.SetDeadline(time.Now().Add(bound))
	r := l.conn.PgConn().ExecPrepared(context.Background(), c[0], c.values(), nil, nil).Read()
	return r.Rows, r.Err
}

// refused reports whether the server has answered with an error, and the connection goes on.
func refused(err error) bool {
	var refusal *pgconn.PgError
	return errors.As(err, &refusal) && refusal.Severity != "FATAL" && refusal.Severity != "PANIC"
}

// begin waits for the turn to talk, which done gives back. An error says that the line is closed, or ctx done before.
func (l *line) begin(ctx context.Context) error {
	l.mu.Lock()
	l.wanted++
	l.interruptLocked()
	l.mu.Unlock()
	var err error
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wanted--
	if err == nil && l.closed != nil {
		l.done()
		return l.closed
	}
	return err
}

func (l *line) done() { <-l.turn }

// talk has f talk.
func (l *line) talk(ctx context.Context, f func() error) error {
	if err := l.begin(ctx); err != nil {
		return err
	}
	defer l.done()
	return f()
}

// interruptLocked has the listener stop.
func (l *line) interruptLocked() {
	if l.listening {
		l.wire.SetReadDeadline(time.Unix(1, 0))
	}
}

// hurry has the listener stop to do something else by then.
func (l *line) hurry(by time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next.After(by) {
		l.next = by
		l.interruptLocked()
	}
}

func (l *line) schedule(next time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next = next
}

var errDropped = errors.New("the connection is closed")

// attend listens, and does what is due, until it is over, or the connection is broken, which it returns.
func (l *line) attend(over func() bool, do func() error) error {
	for !over() {
		due, err := l.listen()
		if err == nil && due {
			err = do()
		}
		if err != nil && !refused(err) {
			return err
		}
	}
	return nil
}

// listen returns when it is time to do something else, which it reports, or somebody wants to talk. An error says that the connection
// is broken.
func (l *line) listen() (due bool, err error) {
	l.turn <- struct{}{}
	defer l.done()
	l.mu.Lock()
	defer l.mu.Unlock()
	if due = !time.Now().Before(l.next); l.closed != nil || due || l.wanted > 0 {
		return due, l.closed
	}
	l.wire.SetDeadline(l.next)
	l.listening = true
	l.mu.Unlock()
	err = l.conn.PgConn().WaitForNotification(context.Background())
	l.mu.Lock()
	l.listening = false
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		err = nil
	}
	return !time.Now().Before(l.next), err
}

// cancel asks the server to end the statement under way, and reports whether it has tried to.
func (l *line) cancel() bool {
	ctx, end := context.WithTimeout(context.Background(), l.bound)
	defer end()
	l.calling.Store(true)
	defer l.calling.Store(false)
	return l.conn.PgConn().CancelRequest(ctx) == nil && ctx.Err() == nil
}

// drop closes the connection, whoever is at it, and returns what is said to whoever comes.
func (l *line) drop(why error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed == nil {
		l.closed = fmt.Errorf("%w: %w", errDropped, why)
	}
	l.wire.Close()
	return l.closed
}

// close says goodbye if the server can hear it. Whoever is at it has a moment to come to an end.
func (l *line) close() {
	ctx, cancel := context.WithTimeout(context.Background(), l.bound)
	defer cancel()
	l.talk(ctx, func() error {
		l.wire.SetDeadline(time.Now().Add(l.bound))
		return l.conn.PgConn().Close(ctx)
	})
	l.drop(second.ErrClosed)
}

// The statements, by the names under which each session has them prepared. $1 is a key; $2 is what pg_stat_activity shows of a session,
// behind its token; $3 says whether the lock is shared.
//
// A token is drawn once the lock is granted, so that it is greater than all before.
var statements = map[string]string{
	"try":       lock("pg_try_advisory_lock", "WHERE granted"),
	"lock":      lock("pg_advisory_lock", ""),
	"leave":     "SELECT " + inMode("pg_advisory_unlock") + ", set_config('application_name', $2, false)",
	"leave-all": "SELECT pg_advisory_unlock_all()",

	// Who holds a lock alone and asks for a share of it is granted that before all who wait.
	"share": "WITH l AS MATERIALIZED (SELECT pg_advisory_lock_shared($1)) SELECT pg_advisory_unlock($1) FROM l",

	// Nobody needs a notification that a server has lost in a crash: do not wait for the disk.
	"announce": "SELECT set_config('synchronous_commit', 'off', true), set_config('application_name', $2, false), " +
		"pg_notify('tierlock', 'waits ' || $1)",
	"ask": "SELECT set_config('synchronous_commit', 'off', true), pg_notify('tierlock', 'asked ' || $1)",

	"name": "SELECT set_config('application_name', $1, false)",

	// Those that hold or want the locks of these keys, first in the queue first. A table lock has two keys.
	"look": `SELECT k.key, l.pid, l.mode = 'ShareLock', l.granted, coalesce(a.application_name, '')
		FROM pg_locks l CROSS JOIN LATERAL (SELECT (l.classid::bigint << 32) | l.objid::bigint AS key) k
		LEFT JOIN pg_stat_activity a USING (pid)
		WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND k.key = ANY ($1::bigint[]) ORDER BY l.granted DESC, l.waitstart, l.pid`,
}

func lock(function, granted string) string {
	return fmt.Sprintf(`WITH l AS MATERIALIZED (SELECT %s AS granted),
		t AS MATERIALIZED (SELECT nextval('tierlock.token') AS token FROM l %s)
		SELECT token, set_config('application_name', 'tierlock ' || token || $2, false) FROM t`, inMode(function), granted)
}

func inMode(function string) string {
	return fmt.Sprintf("CASE WHEN $3 THEN %[1]s_shared($1) ELSE %[1]s($1) END", function)
}
