package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/inspect"
)

// The type rows reads the rows of the tierlock tables.
type rows struct{ db *sql.DB }

// The method paths finds the locks and semaphores at a path or below it that have a holder or a waiter.
func (r rows) paths(ctx context.Context, below string, limit int) (paths []string, looked int, complete bool, err error) {
	found, err := r.db.QueryContext(ctx, `SELECT DISTINCT SUBSTRING_INDEX(path, '\n', 1) AS name FROM tierlock_contender
		HAVING ? = '/' OR name = ? OR LEFT(name, LENGTH(?) + 1) = CONCAT(?, '/') ORDER BY name LIMIT ?`, below, below, below, below, limit+1)
	if err == nil {
		defer found.Close()
		for found.Next() && err == nil {
			var path string
			err = found.Scan(&path)
			paths = append(paths, path)
		}
		err = errors.Join(err, found.Err())
	}
	if err != nil {
		return nil, 0, false, fmt.Errorf("locks below %s: %w", below, err)
	}
	complete = len(paths) <= limit
	paths = paths[:min(len(paths), limit)]
	return paths, len(paths), complete, nil
}

// find adds findings about MySQL: about rights, about the server, and about how long the holder's session would last if its process died.
func (r rows) find(ctx context.Context, report *inspect.Report) error {
	var version string
	var readOnly, durable bool
	if err := r.db.QueryRowContext(ctx, `SELECT VERSION(), @@global.read_only NOT IN ('OFF', '0'),
		@@global.innodb_flush_log_at_trx_commit = 1 AND (NOT @@global.log_bin OR @@global.sync_binlog = 1)`).
		Scan(&version, &readOnly, &durable); err != nil {
		return err
	}
	switch err := r.db.QueryRowContext(ctx, "CALL tierlock_check()").Scan(new(sql.NullString)); {
	case err == nil:
		report.Find(inspect.OK, "", "these credentials may queue: they have the rights on the tierlock tables and procedures")
	case number(err) == 1290:
	case refused(err):
		report.Find(inspect.Problem, "", "these credentials cannot queue: %v; see mysqllock.Migrate for the rights", err)
	default:
		return err
	}
	switch {
	case readOnly:
		report.Find(inspect.Problem, "", "the server is read-only: no process can queue there")
	case !durable:
		report.Find(inspect.Warning, "", "the server is %s, and its commits do not survive a crash of its machine: set "+
			"innodb_flush_log_at_trx_commit and sync_binlog to 1", version)
	default:
		report.Find(inspect.OK, "", "the server is %s", version)
	}
	holder := report.Holder()
	if holder == nil {
		return nil
	}
	var seconds float64
	err := r.db.QueryRowContext(ctx, `SELECT s.expires / 1000000 - UNIX_TIMESTAMP(SYSDATE(6)) FROM tierlock_session s
		JOIN tierlock_contender c ON c.session = s.id WHERE c.path = ? AND c.token = ?`, report.Path, holder.Token).Scan(&seconds)
	switch {
	case errors.Is(err, sql.ErrNoRows): // the holder has left since the queue was read
	case err != nil:
		return err
	case seconds <= 0:
		report.Find(inspect.Note, holder.Node, "its session has expired: the entry is deleted when another process renews a session or queues")
	default:
		report.Find(inspect.OK, holder.Node, "its session ends in %.1f s unless its process renews it", seconds)
	}
	return nil
}
