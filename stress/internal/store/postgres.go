package store

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tierlock/tierlock/internal/test/pgserver"
	"github.com/tierlock/tierlock/pglock"
	"github.com/tierlock/tierlock/stress/internal/trace"
)

// Postgres is the store of pglock with queues in a table, PostgresAdvisory with the locks of
// sessions: those go with the connection.
var (
	Postgres         = postgres("postgres", openPostgres(pglock.New), false, Mutex, ReadersWriter, Semaphore)
	PostgresAdvisory = postgres("postgres-advisory", openPostgres(pglock.NewAdvisory), true, Mutex, ReadersWriter)
)

func postgres(name string, open open, brittle bool, sorts ...Sort) *Store {
	return &Store{
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
}

const noPostgres = none("PostgreSQL")

// startPostgres starts servers of which a standby, if there is one, has each write that was
// acknowledged.
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

// connectPostgres does not wait for a connection. Of several servers it finds the primary.
// The pool has as many connections as pgx gives it, unless there are to be others.
func connectPostgres(servers []string, connections int) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(pgserver.URL(servers...))
	if err != nil {
		return nil, err
	}
	cfg.ConnConfig.Tracer = counted{}
	if connections > 0 {
		cfg.MaxConns = int32(connections)
	}
	return pgxpool.NewWithConfig(context.Background(), cfg)
}

// Statements counts those that this process sends to PostgreSQL, of whose messages no server tells.
var Statements atomic.Int64

type counted struct{}

func (counted) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	Statements.Add(1)
	return ctx
}

func (counted) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
