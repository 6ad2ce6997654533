package pglock

import (
	"cmp"
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

// errPooler says that connections do not have a session each.
var errPooler = errors.New("a pooler in between gives each transaction to any session of the server, as PgBouncer does with " +
	"pool_mode=transaction; connect to the server itself, or to a pool with pool_mode=session")

// checkPooler returns errPooler if what is said on a connection is not said in one session of the server. It sets nothing
// there, which somebody else's transactions would get.
//
// A pooler has made up the number by which a client asks for requests to be cancelled, which is that of the server's
// process for a client that has one. Behind one, another client either gets the same process while the first is
// there, or keeps that busy, so that the first gets another one; what others do there at the time may hide that, but not each time.
func checkPooler(ctx context.Context, conn *pgx.Conn) error {
	own, err := backend(ctx, conn)
	if err != nil || own == conn.PgConn().PID() {
		return err
	}
	other, err := pgx.ConnectConfig(ctx, conn.Config())
	if err != nil {
		return err
	}
	defer other.Close(ctx)
	for range 10 {
		if err := checkApart(ctx, conn, own, other); err != nil {
			return err
		}
	}
	return nil
}

// checkApart returns errPooler if the process of a connection, which was own, also serves another one, or has changed.
func checkApart(ctx context.Context, conn *pgx.Conn, own uint32, other *pgx.Conn) error {
	tx, err := other.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx)
	if theirs, err := backend(ctx, tx); err != nil || theirs == own {
		return cmp.Or(err, errPooler)
	}
	if now, err := backend(ctx, conn); err != nil || now != own {
		return cmp.Or(err, errPooler)
	}
	return nil
}

// backend asks which process of the server it is.
func backend(ctx context.Context, q querier) (pid uint32, err error) {
	err = q.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeExec).Scan(&pid)
	return pid, err
}
