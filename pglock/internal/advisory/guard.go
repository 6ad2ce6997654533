package advisory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
)

// Tx runs f in a transaction of the session in which a contender has the lock: what is committed there is committed while the lock is
// ours. It sends nothing if check, which should include [queue.Contender.Err], returns an error. The contender is not idle from before
// that is asked.
//
// While it lasts nothing else is sent in the session, so it has to end within the lease as it is renewed at its beginning. When that
// is over, or ctx ends, the connection is closed, whatever is under way, and with it the lock is lost.
func (s *Store) Tx(ctx context.Context, c *queue.Contender, check func() error, f func(pgx.Tx) error) error {
	if err := c.Begin(ctx, check); err != nil {
		return err
	}
	defer c.Finish()
	e := s.find(c.Ref().ID)
	if e == nil {
		return cmp.Or(c.Err(), errDropped)
	}
	x := e.session
	if err := x.begin(ctx); err != nil {
		return cmp.Or(c.Err(), err)
	}
	defer x.done()
	x.dying = e.lost
	err := e.transact(ctx, c, check, f)
	x.dying = nil
	if x.conn.IsClosed() || e.over.Load() && c.Err() != second.ErrReleased { //nolint:errorlint // nobody wraps it
		e.lose(cmp.Or(err, errDropped))
	}
	switch lost := check(); {
	case err == nil || lost == nil || errors.Is(err, lost) || errors.Is(err, second.ErrUnknown):
		return err
	case errors.Is(lost, err):
		return lost
	default:
		return fmt.Errorf("%w: %w", lost, err)
	}
}

// transact commits unless check fails. Before that it has the session answer, and leaves nothing to be checked in the commit, which no
// timeout of the server ends. A commit that is not answered may be done: that alone does not say that the lock was lost before. The
// server itself ends what is stuck, should nobody be there to do so once the lease is over.
func (e *entry) transact(ctx context.Context, c *queue.Contender, check func() error, f func(pgx.Tx) error) error {
	x := e.session
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	aborted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(aborted)
		e.lost(context.Cause(ctx)) // first: a cancelled statement may end the transaction
		x.cancel()
		e.lose(context.Cause(ctx))
	})
	var tx pgx.Tx
	defer func() {
		if !stop() {
			<-aborted
		} else if tx != nil {
			tx.Rollback(ctx) // nothing once it is committed
		}
	}()
	if err := e.beat(); err != nil {
		return cmp.Or(c.Err(), err)
	}
	if err := c.Err(); err != nil {
		return err
	}
	defer time.AfterFunc(time.Until(c.ValidUntil()), func() { cancel(errors.New("the transaction has lasted for the whole lease")) }).Stop()
	x.wire.SetDeadline(time.Time{})
	timeout := "set local statement_timeout = " + milliseconds(e.store.config.TTL)
	tx, err := x.conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: "begin isolation level read committed read write; " + timeout})
	if err == nil {
		err = f(tx)
	}
	if err == nil {
		_, err = tx.Exec(ctx, "set constraints all immediate")
	}
	if err := cmp.Or(check(), err, context.Cause(ctx)); err != nil {
		return err
	}
	err = tx.Commit(ctx)
	if err == nil || refused(err) || errors.Is(err, pgx.ErrTxCommitRollback) {
		return err
	}
	return fmt.Errorf("%w: %w", second.ErrUnknown, cmp.Or(context.Cause(ctx), err))
}
