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

// Tx is the guarded write of PostgreSQL. It calls f in a transaction on a connection of the pool. Tx commits the transaction only if f
// returns nil and this process still holds all locks of guard, a [*tier.Hold] or a [*tier.Bundle]. The server checks the locks together
// with the commit, after deferred constraints. If a lock is lost during the transaction, other processes can acquire the lock, and the
// transaction cannot commit.
//
// The isolation level of the transaction is read committed. If a statement takes longer than the lease TTL, it fails. If a transaction
// sends nothing for a lease TTL, the server aborts it and frees its row locks. When a lock is lost, the connection is closed at once. f
// must not commit or roll back the transaction, and must not use tx after f has returned.
//
// If the error wraps [tier.ErrUnknown], the outcome is ambiguous: the answer to the commit did not arrive within a sixth of the TTL, or
// before ctx ended. The commit may still take effect, but not after another process has acquired one of the locks. Until the outcome is
// known, the locks are not handed off within this process. If the outcome does not become known, the release gives the locks back to the
// store. After any other error nothing was changed. Such an error comes from f, wraps [tier.ErrLost] or [tier.ErrReleased], is a refusal
// by the server, or says that the locks belong to different registries.
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
	proof(queue.Ref) string // what tierlock.guard knows by that a contender has the lock
	transact(ctx context.Context, all []*queue.Contender, proofs []string, check func() error, f func(pgx.Tx) error) error
}

// transact is [Tx] for contenders; check reports whether this process still has their locks.
func transact(ctx context.Context, s guarded, all []*queue.Contender, check func() error, f func(pgx.Tx) error) error {
	var proofs []string
	for _, c := range all {
		proofs = append(proofs, s.proof(c.Ref()))
	}
	return s.transact(ctx, all, proofs, check, f)
}

// beginQuery begins a guarded transaction. Its timeouts bound how long a stuck transaction delays others.
const beginQuery = `begin isolation level read committed read write;
	set local statement_timeout = %[1]d; set local idle_in_transaction_session_timeout = %[1]d`

// checkDeferred checks deferred constraints before the commit. No timeout ends a commit, and other processes wait for the lock meanwhile.
const checkDeferred = "set constraints all immediate"

// transact runs f in a transaction for these contenders. tierlock.guard checks them by their proofs.
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

// perform runs f in a transaction and leaves the transaction open for the commit. When the first of the holds ends, the connection is
// broken, even if f is using it. The connection is then also closed in the pool, which would otherwise regard it as usable once it is
// idle.
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

// A body is the transaction as the user's function gets it.
type body struct{ pgx.Tx }

func (body) Commit(context.Context) error {
	return errors.New("pglock: Tx commits when the function has returned")
}

// rollback returns the connection to the pool. The pool closes it if it is still in a transaction.
func (s *base) rollback(ctx context.Context, conn *pgxpool.Conn) {
	defer conn.Release()
	if conn.Conn().PgConn().TxStatus() != idle {
		ctx, cancel := context.WithTimeout(ctx, s.tier.Patience())
		defer cancel()
		conn.Exec(ctx, "rollback")
	}
}

// commit sends the guard and the commit in one message, so the server receives all statements or none. The guard fails if a lock was
// lost. held is the number of contenders whose locks were found to be held.
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
