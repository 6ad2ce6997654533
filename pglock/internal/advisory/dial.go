package advisory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
)

// dial makes a connection whose session the server ends when it has been idle for the TTL.
func dial(ctx context.Context, c Config, bound time.Duration, heard func(*pgconn.PgConn, *pgconn.Notification)) (*line, error) {
	l := &line{turn: make(chan struct{}, 1), bound: bound}
	pool := c.Pool.Config()
	config := pool.ConnConfig
	config.OnNotification = heard
	config.ConnectTimeout = bound
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
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	if pool.BeforeConnect != nil {
		if err := pool.BeforeConnect(ctx, config); err != nil {
			return nil, err
		}
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	var refusal *pgconn.PgError
	if errors.As(err, &refusal) && strings.HasPrefix(refusal.Message, "unsupported startup parameter") { // says PgBouncer
		err = fmt.Errorf("%w: %w", ErrNoLease, err)
	}
	if err != nil {
		return nil, err
	}
	l.conn, l.wire, l.pid = conn, conn.PgConn().Conn(), conn.PgConn().PID()
	if pool.AfterConnect != nil {
		err = pool.AfterConnect(ctx, conn)
	}
	if err == nil {
		err = c.CheckSchema(ctx, conn)
	}
	if err == nil {
		err = l.prepare(ctx, c)
	}
	if err != nil {
		conn.Close(ctx)
		return nil, err
	}
	l.calling.Store(false)
	return l, nil
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
func (l *line) prepare(ctx context.Context, c Config) error {
	ttl := milliseconds(c.TTL)
	p := l.conn.PgConn().StartPipeline(ctx)
	for _, name := range slices.Sorted(maps.Keys(statements)) {
		p.SendPrepare(name, statements[name], nil)
	}
	p.SendPipelineSync()
	// What is missing in some versions and on some systems.
	optional := map[string]string{
		// A session that waits is not idle: only this tells that its client is gone.
		"client_connection_check_interval": milliseconds(min(c.TTL/8, time.Second)),
		"transaction_timeout":              "0",
	}
	for name, value := range optional {
		p.SendQueryParams("SELECT set_config($1, $2, false)", [][]byte{[]byte(name), []byte(value)}, nil, nil, nil)
		p.SendPipelineSync()
	}
	p.SendQueryParams("SELECT tierlock.quarantine($1), setting FROM pg_settings WHERE name = 'idle_session_timeout'", [][]byte{[]byte(ttl)}, nil, nil, nil)
	p.SendPipelineSync()
	if err := p.Flush(); err != nil {
		return err
	}
	if _, err := answer(p); err != nil {
		return err
	}
	for range optional {
		var refusal *pgconn.PgError
		if _, err := answer(p); err != nil && !errors.As(err, &refusal) {
			return err
		}
	}
	rows, err := answer(p)
	if err != nil {
		return err
	}
	if got := string(rows[0][1]); got != ttl {
		return fmt.Errorf("%w: it is %s ms where %s was asked for", ErrNoLease, got, ttl)
	}
	left, err := strconv.ParseInt(string(rows[0][0]), 10, 64)
	if err != nil {
		return err
	}
	l.calm = time.Duration(left) * time.Millisecond
	return p.Close()
}

// ErrNoLease says that the server would not end an idle session in time.
var ErrNoLease = errors.New("the session does not have the idle_session_timeout that was asked for: a pooler in between, such as PgBouncer, does not pass it on, " +
	"or a hook of the pool has changed it; connect to the server itself")

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
