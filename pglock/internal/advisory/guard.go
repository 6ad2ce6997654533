package advisory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tierlock/tierlock/internal/second"
)

// Tx runs f in a transaction of the session that has the lock: what is committed there is committed
// while the lock is ours. It sends nothing if check, which should include [Contender.Err], returns
// an error. The contender is not idle from before that is asked.
//
// While it lasts nothing else is sent in the session, so it has to end within the lease as it is
// renewed at its beginning. When that is over, or ctx ends, the connection is closed, whatever is under
// way, and with it the lock is lost.
func (c *Contender) Tx(ctx context.Context, check func() error, f func(pgx.Tx) error) error {
	c.pending.Add(1) // count first, look after
	defer c.pending.Add(-1)
	if err := cmp.Or(check(), context.Cause(ctx)); err != nil {
		return err
	}
	x := c.session
	if !x.begin() {
		return cmp.Or(c.Err(), errDropped)
	}
	defer x.done()
	err := c.transact(ctx, check, f)
	if x.conn.IsClosed() || x.isClosed() || x.Over() {
		x.broken(cmp.Or(err, errDropped))
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

// renew makes sure that the lease runs and the session lives.
func (c *Contender) renew() error {
	if err := c.Err(); err != nil {
		return err
	}
	if _, err := c.session.askPatiently("look", array()); err != nil {
		return cmp.Or(c.Err(), err)
	}
	return c.Err()
}

// transact commits unless check fails. Before that it has the session answer, and leaves nothing to be
// checked in the commit, which no timeout of the server ends. A commit that is not answered may be done:
// that alone does not say that the lock was lost before. The server itself ends what is stuck, should nobody
// be there to do so once the lease is over.
func (c *Contender) transact(ctx context.Context, check func() error, f func(pgx.Tx) error) error {
	x := c.session
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	aborted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(aborted)
		x.end(context.Cause(ctx)) // first: a cancelled statement may end the transaction
		x.cancel()
		x.broken(context.Cause(ctx))
	})
	var tx pgx.Tx
	defer func() {
		if !stop() {
			<-aborted
		} else if tx != nil {
			tx.Rollback(ctx) // nothing once it is committed
		}
	}()
	if err := c.renew(); err != nil {
		return err
	}
	left, _ := x.Remaining()
	defer time.AfterFunc(left, func() { cancel(errTooLong) }).Stop()
	x.wire.SetDeadline(time.Time{})
	timeout := "set local statement_timeout = " + milliseconds(x.tier.config.TTL)
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

var errTooLong = errors.New("the transaction has lasted for the whole lease")
