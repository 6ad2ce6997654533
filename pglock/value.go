package pglock

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
)

// A writer is a connection or a pool.
type writer interface {
	querier
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// saveOrLoad executes a Save or a Load. The guard and the write of a Save are one statement, so they take effect together. The proof has
// the SQL arguments for tierlock.guard.
func saveOrLoad(ctx context.Context, on writer, c queue.Command, path, proof string) (a queue.Answer, err error) {
	a.Outcome = queue.Done
	if c.Op == queue.Save {
		_, err = on.Exec(ctx, "SELECT tierlock.guard("+proof+"), tierlock.keep($1, $2, $3, $4)", pgx.QueryExecModeExec,
			path, c.Token, c.Turn, c.Data)
		if refusal(err) == "TL001" {
			return queue.Answer{Outcome: queue.Gone}, nil
		}
		return a, err
	}
	var v second.Value
	err = on.QueryRow(ctx, "SELECT token, saved, data FROM tierlock.load($1)", pgx.QueryExecModeExec, path).Scan(&v.Token, &v.Saved, &v.Data)
	if errors.Is(err, pgx.ErrNoRows) {
		return a, nil
	}
	a.Value = &v
	return a, err
}
