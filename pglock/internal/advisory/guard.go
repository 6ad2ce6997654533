package advisory

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tierlock/tierlock/internal/second"
)

// Tx runs f in a transaction of the session that has the lock: what is committed there is committed
// while the lock is ours. It sends nothing if check, which should include [Contender.Err], returns
// an error. The contender is not idle from before that is asked.
//
// While it lasts nothing else is sent in the session, so it has to end within the lease as it is
// renewed at its beginning: its context ends with that. If ctx ends during a statement, or there is no
// answer, the connection is closed, and with it the lock is lost.
func (c *Contender) Tx(ctx context.Context, check func() error, f func(pgx.Tx) error) error {
	c.pending.Add(1) // count first, look after
	defer c.pending.Add(-1)
	if err := check(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	x := c.session
	if !x.begin() {
		return cmp.Or(c.Err(), errDropped)
	}
	defer x.done()
	if err := c.renew(); err != nil {
		return err
	}
	left, _ := x.Remaining()
	ctx, cancel := context.WithTimeoutCause(ctx, left, second.Lost(second.ByLease, "the transaction has lasted for the whole lease"))
	defer cancel()
	err := x.transact(ctx, check, f)
	if x.conn.IsClosed() {
		x.broken(errors.Join(errDropped, err))
	}
	return err
}

// renew makes sure that the lease runs and the session lives.
func (c *Contender) renew() error {
	if err := c.Err(); err != nil {
		return err
	}
	if _, err := c.session.ask("look", array()); err != nil {
		return errors.Join(c.Err(), err)
	}
	return c.Err()
}

// transact commits unless check fails. When the commit does, that alone does not say that the lock was lost
// before: it may be done.
func (x *session) transact(ctx context.Context, check func() error, f func(pgx.Tx) error) error {
	x.wire.SetDeadline(time.Time{})
	x.calling.Store(true) // a request to cancel is wanted
	defer x.calling.Store(false)
	tx, err := x.conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite})
	if err == nil {
		defer tx.Rollback(ctx) // nothing once it is committed
		err = f(tx)
	}
	if lost := check(); lost != nil || err != nil {
		return cmp.Or(lost, err)
	}
	return tx.Commit(ctx)
}
