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
	err := c.renew()
	if err == nil {
		err = x.transact(ctx, check, f)
	}
	if x.conn.IsClosed() || x.isClosed() {
		x.broken(cmp.Or(err, errDropped))
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
// before: it may be done. The server itself ends what is stuck, should nobody be there to do so once the
// lease is over.
func (x *session) transact(ctx context.Context, check func() error, f func(pgx.Tx) error) error {
	left, _ := x.Remaining()
	ctx, cancel := context.WithTimeoutCause(ctx, left, second.Lost(second.ByLease, "the transaction has lasted for the whole lease"))
	defer cancel()
	aborted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(aborted)
		x.cancel()
		x.drop()
	})
	defer func() {
		if !stop() {
			<-aborted
		}
	}()
	x.wire.SetDeadline(time.Time{})
	timeout := "set local statement_timeout = " + milliseconds(x.tier.config.TTL)
	tx, err := x.conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: "begin isolation level read committed read write; " + timeout})
	if err == nil {
		defer tx.Rollback(ctx) // nothing once it is committed
		err = f(tx)
	}
	if lost := check(); lost != nil || err != nil {
		return cmp.Or(lost, err)
	}
	return tx.Commit(ctx)
}
