package mysqllock

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/tier"
)

// Tx runs f in a transaction, on a connection of the pool that the locks were made with. It commits the transaction if f returns nil
// and all locks of guard, a [*tier.Hold] or a [*tier.Bundle], are still ours: an exact fence for data in the same database.
//
// The server checks the locks and commits in one call. It grants them to no other process from the check until the commit is done.
// Before the check, the transaction keeps no process from getting the locks. When a lock is lost or its contender given up, the
// connection is closed at once, and the server rolls back. F must not commit or roll back, and must not use tx after it has returned.
//
// The isolation of the transaction is READ COMMITTED. Tables of engines without transactions, and statements that commit by themselves,
// such as CREATE TABLE, are not guarded.
//
// Nothing was changed when the error is that of f, or wraps [tier.ErrLost] or [tier.ErrReleased], or is one with which the server
// refuses something, or the locks are not all of one registry of this package. When the answer to the commit is lost, or does not come
// within a sixth of the lease TTL, or ctx ends first, the error wraps [tier.ErrUnknown]: it may still be committed, but never after one
// of the locks went to another process. Until the outcome is known no lock is handed on within the process either. If it never is
// known, the locks leave the process with the release.
func Tx(ctx context.Context, guard tier.Guard, f func(tx *sql.Tx) error) error {
	locks, err := tier.GuardOf(guard)
	if err != nil {
		return fmt.Errorf("mysqllock: transaction: %w", err)
	}
	s, all, err := queue.Guarding[*store](locks, "MySQL")
	if err == nil {
		err = s.transact(ctx, all, locks.Check, f)
	}
	if err != nil {
		return fmt.Errorf("mysqllock: transaction under %s: %w", locks.Path, err)
	}
	return nil
}

// transact is [Tx] under contenders; check returns an error if their locks are not held.
func (s *store) transact(ctx context.Context, all []*queue.Contender, check func() error, f func(*sql.Tx) error) error {
	if err := cmp.Or(check(), context.Cause(ctx)); err != nil {
		return err
	}
	body, cancel := context.WithCancelCause(context.WithoutCancel(ctx)) // at its end the driver closes the connection
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	defer stop()
	for _, c := range all {
		defer context.AfterFunc(c.Tenure(), func() { cancel(context.Cause(c.Tenure())) })()
	}
	// Others change the contender meanwhile. With another isolation the server may then refuse to lock it.
	tx, err := s.db.BeginTx(body, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err == nil {
		defer tx.Rollback() // of nothing, once it is committed
		err = f(tx)
	}
	if err != nil {
		if body.Err() != nil {
			err = cmp.Or(check(), context.Cause(body), err)
		}
		return err
	}
	if !stop() {
		return context.Cause(ctx)
	}
	return queue.Write(ctx, all, check, func() (queue.Outcome, error) { return s.commit(tx, all, check) })
}

// commit has the server look for the locks, and commit.
func (s *store) commit(tx *sql.Tx, all []*queue.Contender, check func() error) (queue.Outcome, error) {
	ctx, cancel := context.WithTimeout(s.ctx, s.tier.Patience())
	defer cancel()
	var ids []string
	for _, c := range all {
		ids = append(ids, c.Ref().ID)
	}
	var committed bool
	var good int
	err := tx.QueryRowContext(ctx, "CALL tierlock_commit(?)", strings.Join(ids, ",")).Scan(&committed, &good)
	switch {
	case errors.Is(err, sql.ErrTxDone):
		return queue.Done, errors.New("the function has ended the transaction, so that it was not guarded")
	case err == nil && !committed:
		err = all[good].Missing()
		return queue.Done, cmp.Or(check(), err)
	}
	return classify(err), err
}
