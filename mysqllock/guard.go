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

// Tx is the guarded write of MySQL and MariaDB. It calls f in a transaction, on a connection of the pool that was passed to [New]. Tx
// commits the transaction only if f returns nil and this process still holds all locks of guard, a [*tier.Hold] or a [*tier.Bundle]. If
// the pool has no free connection, Tx waits for one until ctx ends.
//
// The server checks the locks and commits in one call. From the check until the end of the commit, the server grants the locks to no other
// process. Before the check, other processes can acquire a lock that was lost; the transaction then cannot commit. When a lock is lost or
// released, the connection is closed at once, and the server rolls the transaction back. f must not commit or roll back the transaction,
// and must not use tx after f has returned.
//
// The isolation level of the transaction is READ COMMITTED. Writes to tables of engines without transactions are not guarded. Statements
// that commit by themselves, such as CREATE TABLE, are not guarded either.
//
// If the error wraps [tier.ErrUnknown], the outcome is ambiguous: the answer to the commit did not arrive within a sixth of the TTL, or
// before ctx ended. The commit may still take effect, but not after another process has acquired one of the locks. Until the outcome is
// known, the locks are not handed off within this process. If the outcome does not become known, the release gives the locks back to the
// store. After any other error nothing was changed. Such an error comes from f, wraps [tier.ErrLost], [tier.ErrReleased] or the cause of
// ctx, is a refusal by the server, or says that the locks belong to different registries.
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

// transact is the part of [Tx] for contenders. check returns an error if this process has lost or released one of their locks.
func (s *store) transact(ctx context.Context, all []*queue.Contender, check func() error, f func(*sql.Tx) error) error {
	if err := cmp.Or(check(), context.Cause(ctx)); err != nil {
		return err
	}
	body, cancel := context.WithCancelCause(context.WithoutCancel(ctx)) // when body ends, the driver closes the connection
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	defer stop()
	for _, c := range all {
		defer context.AfterFunc(c.Tenure(), func() { cancel(context.Cause(c.Tenure())) })()
	}
	// Other transactions change the row of the contender during this one. With another isolation level, the server might then refuse to lock
	// the row.
	tx, err := s.db.BeginTx(body, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err == nil {
		defer tx.Rollback() // does nothing after a commit
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

// commit makes the server check the locks and commit, in one call.
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
		return queue.Done, errors.New("the function has ended the transaction itself, so the locks did not guard it")
	case err == nil && !committed:
		err = all[good].Missing()
		return queue.Done, cmp.Or(check(), err)
	}
	return classify(err), err
}
