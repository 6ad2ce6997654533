package pglock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/tier"
)

// Tx runs f in a transaction, on a connection of the pool that the locks were made with, and commits it
// if f returns nil and all locks of guard, a [*tier.Hold] or a [*tier.Bundle], are still ours: an exact fence for data in the same
// database. The server makes sure of that in the message that commits, once deferred constraints are checked. From then until
// the commit is done, it gives the locks to nobody else; before, the transaction keeps nobody from getting
// them, however long it takes.
//
// The transaction is read committed. A statement that takes longer than the lease TTL ends with an error, and so does
// the transaction if nothing is sent for as long: what a process that is cut off has locked in the
// database is free again then. When a lock is lost or its contender given up, the connection is closed
// at once. F neither commits nor rolls back, and uses tx only until it returns.
//
// Nothing was changed when the error is that of f, or wraps [tier.ErrLost] or [tier.ErrReleased], or is
// one with which the server refuses something, or the locks are not all of one registry of this package. When the answer
// to the commit is lost, or does not come within a sixth of the lease TTL, or ctx ends first, the error wraps
// [tier.ErrUnknown]: it may still be committed, but never after one of the locks went to another process. Until the
// outcome is known no lock is handed on within the process either; if it never is known, the locks
// leave the process with the release.
func Tx(ctx context.Context, guard tier.Guard, f func(tx pgx.Tx) error) error {
	locks, err := tier.GuardOf(guard)
	if err != nil {
		return fmt.Errorf("pglock: transaction: %w", err)
	}
	s, all, err := queue.Guarding[guarded](locks, "PostgreSQL")
	if err == nil {
		err = transact(ctx, s, all, locks.Check, f)
	}
	if err != nil {
		return fmt.Errorf("pglock: transaction under %s: %w", locks.Path, err)
	}
	return nil
}

// A guarded store is one with locks in tables, or with advisory locks.
type guarded interface {
	queue.Store
	proof(*queue.Contender) string // what tierlock.guard knows by that a contender has the lock
	transact(ctx context.Context, all []*queue.Contender, proofs []string, check func() error, f func(pgx.Tx) error) error
}

// transact is [Tx] under contenders of which check has to say that the locks are ours.
func transact(ctx context.Context, s guarded, all []*queue.Contender, check func() error, f func(pgx.Tx) error) error {
	var proofs []string
	for _, c := range all {
		proofs = append(proofs, s.proof(c))
	}
	return s.transact(ctx, all, proofs, check, f)
}

// beginQuery is how a guarded transaction begins. Whoever is stuck in it keeps nobody for ever.
const beginQuery = `begin isolation level read committed read write;
	set local statement_timeout = %[1]d; set local idle_in_transaction_session_timeout = %[1]d`

// checkDeferred leaves nothing to be checked in the commit, which no timeout ends, and nobody else gets the
// lock meanwhile.
const checkDeferred = "set constraints all immediate"

// transact is that of contenders that tierlock.guard knows by their proofs.
func (s *base) transact(ctx context.Context, all []*queue.Contender, proofs []string, check func() error, f func(pgx.Tx) error) error {
	if err := cmp.Or(check(), context.Cause(ctx)); err != nil {
		return err
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	var taken atomic.Bool // by the one who commits, or rolls back
	defer func() {
		if !taken.Swap(true) {
			s.rollback(ctx, conn)
		}
	}()
	if err := s.perform(ctx, all, conn, f); err != nil {
		return cmp.Or(check(), err)
	}
	return queue.Write(ctx, all, check, func() (queue.Outcome, error) {
		if taken.Swap(true) {
			return queue.Failed, context.Cause(ctx)
		}
		defer conn.Release()
		held, err := s.commit(conn, proofs)
		if refusal(err) == "TL001" {
			err = all[held].Missing()
			return queue.Done, cmp.Or(check(), err)
		}
		return classify(err), err
	})
}

// perform runs f in a transaction, which it leaves to be committed. At the end of the first tenure the connection is broken, whoever
// uses it. Then it is closed, too: the pool would take one that is idle for a good one.
func (s *base) perform(ctx context.Context, all []*queue.Contender, conn *pgxpool.Conn, f func(pgx.Tx) error) (err error) {
	wire := conn.Conn().PgConn().Conn()
	for _, c := range all {
		spare := context.AfterFunc(c.Tenure(), func() { wire.Close() })
		defer func() {
			if !spare() {
				conn.Conn().Close(ctx)
				err = cmp.Or(err, context.Cause(c.Tenure()))
			}
		}()
	}
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: fmt.Sprintf(beginQuery, s.options.TTL.Milliseconds())})
	if err == nil {
		err = f(body{tx})
	}
	if err == nil {
		_, err = conn.Exec(ctx, checkDeferred)
	}
	if err == nil && conn.Conn().PgConn().TxStatus() != inTransaction {
		err = errors.New("the function has ended the transaction, or a statement has failed")
	}
	return err
}

const inTransaction, idle = 'T', 'I'

// A body is what the user has of a transaction.
type body struct{ pgx.Tx }

func (body) Commit(context.Context) error {
	return errors.New("pglock: Tx commits when the function has returned")
}

// rollback gives the connection back. The pool closes one that is in a transaction still.
func (s *base) rollback(ctx context.Context, conn *pgxpool.Conn) {
	defer conn.Release()
	if conn.Conn().PgConn().TxStatus() != idle {
		ctx, cancel := context.WithTimeout(ctx, s.tier.Patience())
		defer cancel()
		conn.Exec(ctx, "rollback")
	}
}

// commit sends one message, so that the server has all statements or none. The guard refuses it once a lock is lost. It returns how many
// of them were found to be held.
func (s *base) commit(conn *pgxpool.Conn, proofs []string) (held int, err error) {
	ctx, cancel := context.WithTimeout(s.tier.Context(), s.tier.Patience())
	defer cancel()
	var message strings.Builder
	for _, proof := range proofs {
		message.WriteString("select tierlock.guard(" + proof + "); ")
	}
	results, err := conn.Conn().PgConn().Exec(ctx, message.String()+"commit").ReadAll()
	for held < len(results) && held < len(proofs)-1 && results[held].Err == nil {
		held++
	}
	return held, err
}
