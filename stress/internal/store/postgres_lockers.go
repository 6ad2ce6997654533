package store

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tierlock/tierlock/pglock"
	"github.com/tierlock/tierlock/stress/internal/clock"
)

// postgresTier is package tier's lock and the pool that it is over.
type postgresTier struct {
	tiered
	pool *pgxpool.Pool
}

// dialPostgresTier dials package tier's locks.
func dialPostgresTier(open opener) func(Sort) Dial {
	return func(sort Sort) Dial {
		return func(_ context.Context, o Options) (Locker, error) {
			pool, err := connectPostgres(o.Servers, 0)
			if err != nil {
				return nil, err
			}
			var options []pglock.Option
			if o.SessionTimeout != 0 {
				options = append(options, pglock.WithLeaseTTL(o.SessionTimeout))
			}
			for _, policy := range o.policy() {
				options = append(options, policy)
			}
			registry, err := open(pool, options...)
			if err != nil {
				pool.Close()
				return nil, err
			}
			return postgresTier{tiered{registry, sort, o.Permits}, pool}, nil
		}
	}
}

func (l postgresTier) Close() error {
	err := l.tiered.Close()
	l.pool.Close()
	return err
}

// advisoryLocker is what users of pgx take as a rule: pg_advisory_lock, for each goroutine
// on a connection of the pool, which it keeps until it unlocks.
type advisoryLocker struct{ pool *pgxpool.Pool }

func dialAdvisory(_ context.Context, o Options) (Locker, error) {
	pool, err := connectPostgres(o.Servers, o.Goroutines)
	if err != nil {
		return nil, err
	}
	return advisoryLocker{pool}, nil
}

func (l advisoryLocker) Close() error {
	l.pool.Close()
	return nil
}

func (l advisoryLocker) Contender(path string) (Contender, error) {
	return func(ctx context.Context, _ int64) (Hold, error) {
		conn, err := l.pool.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		// An error closes the connection, and so frees what was granted.
		if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock(hashtextextended($1, 0))", path); err != nil {
			conn.Release()
			return nil, err
		}
		return advisoryHold{conn, path}, nil
	}, nil
}

type advisoryHold struct {
	conn *pgxpool.Conn
	path string
}

func (advisoryHold) Token() int64          { return 0 }
func (advisoryHold) Lost() <-chan struct{} { return nil }
func (advisoryHold) Err() error            { return nil }

func (h advisoryHold) Release() error {
	defer h.conn.Release()
	_, err := h.conn.Exec(context.Background(), "SELECT pg_advisory_unlock(hashtextextended($1, 0))", h.path)
	return err
}

// versionLocker is an optimistic lock: a row with a version, which whoever has read it may
// replace if nobody else has done so meanwhile. Who finds the lock taken, or comes second,
// looks again after 1 to 10 ms, at random: short beside a person, long beside a statement,
// and not all at once.
type versionLocker struct{ pool *pgxpool.Pool }

const (
	versionLeast = time.Millisecond
	versionMost  = 10 * time.Millisecond
)

func dialVersion(_ context.Context, o Options) (Locker, error) {
	pool, err := connectPostgres(o.Servers, o.Goroutines)
	if err != nil {
		return nil, err
	}
	return versionLocker{pool}, nil
}

func (l versionLocker) Close() error {
	l.pool.Close()
	return nil
}

func (l versionLocker) Contender(path string) (Contender, error) {
	return func(ctx context.Context, _ int64) (Hold, error) {
		for {
			// Not bounded by ctx: nobody would know what an update that was given up has done.
			hold, err := l.try(context.WithoutCancel(ctx), path)
			if hold != nil || err != nil {
				return hold, err
			}
			clock.Sleep(versionLeast+rand.N(versionMost-versionLeast), ctx.Done())
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
		}
	}, nil
}

// try returns nil if the lock is another's.
func (l versionLocker) try(ctx context.Context, path string) (Hold, error) {
	var held bool
	var version int64
	err := l.pool.QueryRow(ctx, "SELECT held, version FROM stress_version WHERE path = $1", path).Scan(&held, &version)
	if err != nil || held {
		return nil, err
	}
	tag, err := l.pool.Exec(ctx,
		"UPDATE stress_version SET held = true, version = version + 1 WHERE path = $1 AND version = $2", path, version)
	if err != nil || tag.RowsAffected() == 0 {
		return nil, err
	}
	return versionHold{l.pool, path, version + 1}, nil
}

type versionHold struct {
	pool    *pgxpool.Pool
	path    string
	version int64
}

func (h versionHold) Token() int64        { return h.version }
func (versionHold) Lost() <-chan struct{} { return nil }
func (versionHold) Err() error            { return nil }

func (h versionHold) Release() error {
	_, err := h.pool.Exec(context.Background(),
		"UPDATE stress_version SET held = false, version = version + 1 WHERE path = $1 AND version = $2", h.path, h.version)
	return err
}
