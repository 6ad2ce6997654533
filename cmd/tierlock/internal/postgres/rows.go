package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/inspect"
)

// The type rows reads the rows of the schema tierlock.
type rows struct{ pool *pgxpool.Pool }

// The method paths finds the locks and semaphores at a path or below it that have contenders.
func (r rows) paths(ctx context.Context, below string, limit int) (paths []string, looked int, complete bool, err error) {
	found, err := r.pool.Query(ctx, `SELECT DISTINCT path FROM (SELECT split_part(path, E'\n', 1) AS path FROM tierlock.contender) c
		WHERE $1 = '/' OR path = $1 OR starts_with(path, $1 || '/') ORDER BY path LIMIT $2`, below, limit+1)
	if err == nil {
		paths, err = pgx.CollectRows(found, pgx.RowTo[string])
	}
	if err != nil {
		return nil, 0, false, fmt.Errorf("locks below %s: %w", below, err)
	}
	complete = len(paths) <= limit
	paths = paths[:min(len(paths), limit)]
	return paths, len(paths), complete, nil
}

const permitted = `SELECT has_sequence_privilege('tierlock.token', 'USAGE') AND
	bool_and(has_table_privilege(name, privilege)) FROM unnest(ARRAY['tierlock.session', 'tierlock.contender']) name,
	unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) privilege`

// find adds findings about PostgreSQL: about privileges, about the server, and about how long the holder's session would last if its
// process died.
func (r rows) find(ctx context.Context, report *inspect.Report) error {
	var version, fsync string
	var standby, may bool
	err := r.pool.QueryRow(ctx, "SELECT current_setting('server_version'), current_setting('fsync'), pg_is_in_recovery(), ("+permitted+")").
		Scan(&version, &fsync, &standby, &may)
	if err != nil {
		return err
	}
	if may {
		report.Find(inspect.OK, "", "these credentials may queue: they have the privileges on the schema tierlock")
	} else {
		report.Find(inspect.Problem, "", "these credentials cannot queue: they lack privileges on the schema tierlock, which its owner "+
			"can grant; see pglock.Migrate")
	}
	switch {
	case standby:
		report.Find(inspect.Problem, "", "the server is a standby: no process can queue there")
	case fsync != "on":
		report.Find(inspect.Warning, "", "the server has PostgreSQL %s, with fsync off: after a crash of its machine it may have "+
			"forgotten who holds", version)
	default:
		report.Find(inspect.OK, "", "the server has PostgreSQL %s", version)
	}
	holder := report.Holder()
	if holder == nil {
		return nil
	}
	var seconds float64
	err = r.pool.QueryRow(ctx, `SELECT extract(epoch FROM s.expires - clock_timestamp()) FROM tierlock.session s
		JOIN tierlock.contender c ON c.session = s.id WHERE c.path = $1 AND c.token = $2`, report.Path, holder.Token).Scan(&seconds)
	switch {
	case err == pgx.ErrNoRows: //nolint:errorlint // pgx returns it unwrapped; the holder has left since the queue was read
	case err != nil:
		return err
	case seconds <= 0:
		report.Find(inspect.Note, holder.Node, "its session has expired: the entry is deleted when another process renews a session or queues")
	default:
		report.Find(inspect.OK, holder.Node, "its session ends in %.1f s unless its process renews it", seconds)
	}
	return nil
}
