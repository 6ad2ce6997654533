package pglock

import (
	"context"
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

// config says how to connect: as the program's pool does. A request is one round trip, so that nothing
// is prepared, and no connection tried out before.
func (s *store) config() *pgxpool.Config {
	c := s.pool.Config()
	c.MaxConns, c.MinConns, c.MinIdleConns = maxRequests, 0, 0
	c.PrepareConn, c.BeforeAcquire, c.AfterRelease, c.BeforeClose = nil, nil, nil, nil //nolint:staticcheck // it may be set
	c.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	c.ConnConfig.DialFunc = s.dial(c.ConnConfig.DialFunc)
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
		_, err := conn.Exec(ctx, settings)
		return err
	}
	return c
}

// connect makes a connection that is in no pool.
func (s *store) connect(ctx context.Context) (*pgx.Conn, error) {
	c := s.requests.Config()
	if c.BeforeConnect != nil {
		if err := c.BeforeConnect(ctx, c.ConnConfig); err != nil {
			return nil, err
		}
	}
	conn, err := pgx.ConnectConfig(ctx, c.ConnConfig)
	if err != nil {
		return nil, err
	}
	if err := c.AfterConnect(ctx, conn); err != nil {
		conn.Close(ctx)
		return nil, err
	}
	return conn, nil
}

// dial makes connections that end with the store, whatever is under way: the driver takes up to 15 s to
// close one in the middle of a request.
func (s *store) dial(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(s.wires, cancel)()
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &wire{Conn: conn, stop: context.AfterFunc(s.wires, func() { conn.Close() })}, nil
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
