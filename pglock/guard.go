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
// with the commit, after deferred constraints. From the check until the end of the commit, it grants the locks to no other process. If a
// lock is lost during the transaction, other processes can acquire the lock, and the transaction cannot commit. If the pool has no free
// connection, Tx waits for one until ctx ends.
//
// The isolation level of the transaction is read committed. If a statement takes longer than the lease TTL, it fails. If a transaction
// sends nothing for a lease TTL, the server aborts it and frees its row locks. When a lock is lost, the connection is closed at once. f
// must not commit or roll back the transaction, and must not use tx after f has returned.
//
// If the error wraps [tier.ErrUnknown], the outcome is ambiguous: the answer to the commit did not arrive within a sixth of the TTL, or
// before ctx ended. The commit may still take effect, but not after another process has acquired one of the locks. Until the outcome is
// known, the locks are not handed off within this process. If the outcome does not become known, the release gives the locks back to the
// store. After any other error nothing was changed. Such an error comes from f, wraps [tier.ErrLost], [tier.ErrReleased] or the cause of
// ctx, is a refusal by the server, or says that the locks belong to different registries.
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

// The interface guarded is implemented by both stores of this package, the one with tables and the one with advisory locks.
type guarded interface {
	queue.Store
	proof(queue.Ref) string // the SQL arguments with which tierlock.guard checks that the contender has the lock
	transact(ctx context.Context, all []*queue.Contender, proofs []string, check func() error, f func(pgx.Tx) error) error
}

// transact is the part of [Tx] for contenders. check returns an error if this process has lost or released one of their locks.
func transact(ctx context.Context, s guarded, all []*queue.Contender, check func() error, f func(pgx.Tx) error) error {
	var proofs []string
	for _, c := range all {
		proofs = append(proofs, s.proof(c.Ref()))
	}
	return s.transact(ctx, all, proofs, check, f)
}

// beginQuery begins a guarded transaction. Its timeouts limit how long a transaction that is stuck delays other processes.
const beginQuery = `begin isolation level read committed read write;
	set local statement_timeout = %[1]d; set local idle_in_transaction_session_timeout = %[1]d`

// checkDeferred makes the server check deferred constraints before the commit. Within the commit no timeout would limit these checks, while
// other processes wait for the lock.
const checkDeferred = "set constraints all immediate"

// transact runs f in a transaction that commits only if all of these contenders have their locks. tierlock.guard checks that with their
// proofs.
func (s *base) transact(ctx context.Context, all []*queue.Contender, proofs []string, check func() error, f func(pgx.Tx) error) error {
	if err := cmp.Or(check(), context.Cause(ctx)); err != nil {
		return err
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	var taken atomic.Bool // set by the goroutine that ends the transaction, by a commit or a rollback
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

// perform runs f in a transaction, and leaves the transaction open for the commit. When one of the holds ends, perform closes the network
// connection, even if f is using it. It then also closes the pool's connection, because the pool would otherwise use it again.
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
		err = errors.New("the function has ended the transaction itself, or a statement has failed")
	}
	return err
}

const inTransaction, idle = 'T', 'I'

// A body is the transaction that the user's function gets. The function cannot commit it.
type body struct{ pgx.Tx }

func (body) Commit(context.Context) error {
	return errors.New("pglock: the function must not commit: Tx commits after the function has returned")
}

// rollback rolls the transaction back, and returns the connection to the pool. If the rollback has failed, the pool closes the connection.
func (s *base) rollback(ctx context.Context, conn *pgxpool.Conn) {
	defer conn.Release()
	if conn.Conn().PgConn().TxStatus() != idle {
		ctx, cancel := context.WithTimeout(ctx, s.tier.Patience())
		defer cancel()
		conn.Exec(ctx, "rollback")
	}
}

// commit sends the calls of the guard and the commit in one message, so the server receives all of these statements or none. A call of the
// guard fails if the lock of its contender was lost. held is how many contenders the guard has found to hold their locks.
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
