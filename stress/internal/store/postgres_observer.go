package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
)

// postgresObserver has its own connection pool.
type postgresObserver struct {
	site
	pool *pgxpool.Pool
}

func observePostgres(ctx context.Context, place Place) (Observer, error) {
	o := &postgresObserver{site: place.site()}
	var err error
	if o.pool, err = connectPostgres(o.servers, 1); err != nil {
		return nil, err
	}
	if err := o.prepare(ctx); err != nil {
		o.pool.Close()
		return nil, fmt.Errorf("%w: %w", noPostgres, err)
	}
	return o, nil
}

// The method prepare creates the table for version locks, and a row for each lock.
func (o *postgresObserver) prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	if _, err := o.pool.Exec(ctx, `CREATE TABLE IF NOT EXISTS stress_version
		(path text PRIMARY KEY, held boolean NOT NULL DEFAULT false, version bigint NOT NULL DEFAULT 0)`); err != nil {
		return err
	}
	_, err := o.pool.Exec(ctx, "INSERT INTO stress_version (path) SELECT unnest($1::text[])", append([]string{o.base}, o.paths...))
	return err
}

// Renew makes a new pool, because the old one may have connections to a server that was replaced.
func (o *postgresObserver) Renew(context.Context) error {
	pool, err := connectPostgres(o.servers, 1)
	if err != nil {
		return err
	}
	o.pool.Close()
	o.pool = pool
	return nil
}

// Orphans counts what is left at the lock paths: contenders (also those for permits), and version rows that are held. It also counts all
// advisory locks that any session has or wants.
func (o *postgresObserver) Orphans() (n int64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), reachTimeout)
	defer cancel()
	if err := o.pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM tierlock.contender WHERE split_part(path, E'\n', 1) = ANY ($1))
		+ (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory')
		+ (SELECT count(*) FROM stress_version WHERE held AND path = ANY ($1))`, o.paths).Scan(&n); err != nil {
		return 0, fmt.Errorf("look for leftovers: %w", err)
	}
	return n, nil
}

func (o *postgresObserver) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), reachTimeout)
	defer cancel()
	_, _ = o.pool.Exec(ctx, "DELETE FROM stress_version WHERE path = ANY ($1)", append([]string{o.base}, o.paths...))
	o.pool.Close()
}

// Traffic does not count packets. It counts as writes the transactions that have an id, because only transactions that have written have
// one.
func (o *postgresObserver) Traffic() (t Traffic, ok bool) {
	ctx, cancel := context.WithTimeout(context.Background(), reachTimeout)
	defer cancel()
	err := o.pool.QueryRow(ctx, "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint").Scan(&t.Writes)
	return t, err == nil
}
