package store

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tierlock/tierlock/stress/internal/clock"
	"github.com/tierlock/tierlock/tier"
)

func openPostgres(create func(context.Context, *pgxpool.Pool, ...tier.RegistryOption) (*tier.Registry, error)) open {
	return func(ctx context.Context, o Options) (*tier.Registry, func() error, error) {
		pool, err := connectPostgres(o.Servers, 0)
		if err != nil {
			return nil, nil, err
		}
		locks, err := create(ctx, pool, o.registry()...)
		return opened(locks, err, func() error { pool.Close(); return nil })
	}
}

// onPool dials locks for which each goroutine may use its own connection of a pool.
func onPool(contender func(pool *pgxpool.Pool, path string) Contender) Dial {
	return func(_ context.Context, o Options) (Locker, error) {
		pool, err := connectPostgres(o.Servers, o.Goroutines)
		if err != nil {
			return nil, err
		}
		return peer{func(path string) Contender { return contender(pool, path) }, func() error { pool.Close(); return nil }}, nil
	}
}

// contendAdvisory does what users of pgx usually do. Each goroutine calls pg_advisory_lock on a connection of the pool, and keeps the
// connection until it unlocks.
func contendAdvisory(pool *pgxpool.Pool, path string) Contender {
	return func(ctx context.Context, _ int64) (Hold, error) {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		// After an error, the connection is closed. That releases the lock if it was granted.
		if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock(hashtextextended($1, 0))", path); err != nil {
			conn.Release()
			return nil, err
		}
		return plain(func() error {
			defer conn.Release()
			_, err := conn.Exec(context.Background(), "SELECT pg_advisory_unlock(hashtextextended($1, 0))", path)
			return err
		}), nil
	}
}

const (
	versionLeast = time.Millisecond
	versionMost  = 10 * time.Millisecond
)

// contendVersion uses an optimistic lock: a row with a version. A process that has read the row may update it if the version has not
// changed since. If the lock is taken, or if another process has updated the row first, the process tries again after a random time of 1
// to 10 ms. That time is short for a person and long for a statement, and it spreads the retries.
func contendVersion(pool *pgxpool.Pool, path string) Contender {
	return func(ctx context.Context, _ int64) (Hold, error) {
		for {
			// ctx does not end the attempt, because it would be unknown whether a cancelled update was executed.
			hold, err := tryVersion(context.WithoutCancel(ctx), pool, path)
			if hold != nil || err != nil {
				return hold, err
			}
			clock.Sleep(versionLeast+rand.N(versionMost-versionLeast), ctx.Done())
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
		}
	}
}

// tryVersion makes one attempt. It returns nil if another process has the lock.
func tryVersion(ctx context.Context, pool *pgxpool.Pool, path string) (Hold, error) {
	var held bool
	var version int64
	err := pool.QueryRow(ctx, "SELECT held, version FROM stress_version WHERE path = $1", path).Scan(&held, &version)
	if err != nil || held {
		return nil, err
	}
	turn := func(held bool, version int64) (int64, error) {
		tag, err := pool.Exec(ctx, "UPDATE stress_version SET held = $3, version = version + 1 WHERE path = $1 AND version = $2",
			path, version, held)
		return tag.RowsAffected(), err
	}
	if changed, err := turn(true, version); err != nil || changed == 0 {
		return nil, err
	}
	return versionHold{plain(func() error {
		_, err := turn(false, version+1)
		return err
	}), version + 1}, nil
}

type versionHold struct {
	plain
	version int64
}

func (h versionHold) Token() int64 { return h.version }
