package store

import (
	"context"
	"errors"
	"net"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tierlock/tierlock/internal/test/pgserver"
	"github.com/tierlock/tierlock/pglock"
	"github.com/tierlock/tierlock/stress/internal/trace"
)

// Postgres is the store of pglock with queues in tables. PostgresAdvisory is the store of pglock with advisory locks, which end with
// their connection.
var (
	Postgres         = postgres("postgres", openPostgres(pglock.New), false, Mutex, ReadersWriter, Semaphore)
	PostgresAdvisory = postgres("postgres-advisory", openPostgres(pglock.NewAdvisory), true, Mutex, ReadersWriter)
)

func postgres(name string, open open, brittle bool, sorts ...Sort) *Store {
	s := &Store{
		Name:  name,
		Title: "PostgreSQL",
		Locks: locksOf(open, sorts, map[string]Dial{"advisory": onPool(contendAdvisory), "advisory-local": local(onPool(contendAdvisory)),
			"version": onPool(contendVersion)}),
		Baselines:    []string{"advisory", "advisory-local", "version"},
		Start:        startPostgres,
		Observe:      observePostgres,
		HastyTimeout: hastyTimeout,
		GracePeriod:  true,
		Brittle:      brittle,
		Model:        trace.Rules{Brittle: brittle, Unordered: brittle},
	}
	if !brittle { // the command has no advisory locks
		s.URL = func(servers []string) string { return pgserver.URL(servers...) }
	}
	return s
}

const noPostgres = none("PostgreSQL")

// startPostgres starts servers. If there are standbys, at least one of them always has each acknowledged write.
func startPostgres(ctx context.Context, shape Shape) (*Cluster, error) {
	ensemble, err := pgserver.StartEnsemble(ctx, shape.Members, pgserver.Config{NoSync: shape.Hasty, Synchronous: shape.Members > 1})
	if err != nil {
		return nil, errors.Join(noPostgres, err)
	}
	if err := migrate(ctx, ensemble.Addrs()); err != nil {
		return nil, errors.Join(noPostgres, err, ensemble.Stop())
	}
	return &Cluster{Ensemble: ensemble.Ensemble, Isolate: ensemble.Isolate, Heal: ensemble.Heal, Replace: ensemble.Failover}, nil
}

func migrate(ctx context.Context, servers []string) error {
	pool, err := connectPostgres(servers, 1)
	if err != nil {
		return err
	}
	defer pool.Close()
	return pglock.Migrate(ctx, pool)
}

// connectPostgres returns a pool without waiting for a connection. If there are several servers, the pool finds the primary. If
// connections is 0, the pool has the default size of pgx.
func connectPostgres(servers []string, connections int) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(pgserver.URL(servers...))
	if err != nil {
		return nil, err
	}
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return countedConn{conn}, err
	}
	if connections > 0 {
		cfg.MaxConns = int32(connections)
	}
	return pgxpool.NewWithConfig(context.Background(), cfg)
}

// Packets counts what this process sends to PostgreSQL or MySQL and receives from it, because the servers do not count that.
var Packets atomic.Int64

type countedConn struct{ net.Conn }

func (c countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 { // otherwise the read has timed out
		Packets.Add(1)
	}
	return n, err
}

func (c countedConn) Write(p []byte) (int, error) {
	Packets.Add(1)
	return c.Conn.Write(p)
}
