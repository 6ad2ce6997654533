package pglock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/tier"
)

// Tx runs f in a transaction, on a connection of the pool that the locks were made with, and commits it
// if f returns nil and the lock of hold is still ours: an exact fence for data in the same database. The
// server makes sure of that in the message that commits, once deferred constraints are checked. From then until
// the commit is done, it gives the lock to nobody else; before, the transaction keeps nobody from getting the
// lock, however long it takes.
//
// The transaction is read committed. A statement that takes longer than the lease TTL ends with an error, and so does
// the transaction if nothing is sent for as long: what a process that is cut off has locked in the
// database is free again then. When the lock is lost or the contender given up, the connection is closed
// at once. F neither commits nor rolls back, and uses tx only until it returns.
//
// Nothing was changed when the error is that of f, or wraps [tier.ErrLost] or [tier.ErrReleased], or is
// one with which the server refuses something, or the lock is not one of this package. When the answer
// to the commit is lost, or does not come within a sixth of the lease TTL, or ctx ends first, the error wraps
// [tier.ErrUnknown]: it may still be committed, but never after the lock went to another process. Until the
// outcome is known the lock is not handed on within the process either; if it never is known, the lock
// leaves the process with the release.
//
// With a lock of [NewAdvisory] the transaction is one of the session that has the lock, which is the fence.
// Nothing else is sent there meanwhile, and so the lease is renewed at its beginning and not again until its end.
// When the lease is over, or ctx ends, or the context of a statement does, the connection is closed and the lock
// is lost, whatever is under way; also when an answer is lost. The hold knows of it before.
func Tx(ctx context.Context, hold *tier.Hold, f func(tx pgx.Tx) error) error {
	err := errors.New("that lock is not on PostgreSQL")
	if c, ok := second.GrantOf(hold).(*queue.Contender); ok {
		switch s := c.Store().(type) {
		case *store:
			err = s.Tx(ctx, c, hold.Err, f)
		case *advisory:
			err = s.Tx(ctx, c, hold.Err, f)
		}
	}
	if err != nil {
		return fmt.Errorf("pglock: transaction under %s: %w", hold.Path(), err)
	}
	return nil
}

// beginQuery is how a guarded transaction begins. Whoever is stuck in it keeps nobody for ever.
const beginQuery = `begin isolation level read committed read write;
	set local statement_timeout = %[1]d; set local idle_in_transaction_session_timeout = %[1]d`

// checkDeferred leaves nothing to be checked in the commit, which no timeout ends, and nobody else gets the
// lock meanwhile.
const checkDeferred = "set constraints all immediate"

// perform runs f in a transaction, which it leaves to be committed.
func perform(ctx context.Context, conn *pgx.Conn, ttl time.Duration, f func(pgx.Tx) error) (pgx.Tx, error) {
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: fmt.Sprintf(beginQuery, ttl.Milliseconds())})
	if err == nil {
		err = f(body{tx})
	}
	if err == nil {
		_, err = conn.Exec(ctx, checkDeferred)
	}
	if err == nil && conn.PgConn().TxStatus() != inTransaction {
		err = errors.New("the function has ended the transaction, or a statement has failed")
	}
	return tx, err
}

// Tx is [Tx] under a contender of which check has to say that the lock is ours.
func (s *store) Tx(ctx context.Context, c *queue.Contender, check func() error, f func(pgx.Tx) error) error {
	if err := cmp.Or(check(), context.Cause(ctx)); err != nil {
		return err
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	t := s.transaction(conn, c)
	defer t.end(ctx)
	if _, err := perform(ctx, conn.Conn(), s.options.TTL, f); err != nil || !t.spare() {
		return cmp.Or(check(), err, context.Cause(c.Tenure()))
	}
	return t.commit(ctx, check)
}

const inTransaction = 'T'

// A body is what the user has of a transaction.
type body struct{ pgx.Tx }

func (body) Commit(context.Context) error {
	return errors.New("pglock: Tx commits when the function has returned")
}

// A transaction is one under a contender.
type transaction struct {
	*pgxpool.Conn
	tier      *queue.Tier
	contender *queue.Contender
	taken     atomic.Bool   // by the one who commits, or ends it without
	spare     func() bool   // reports whether the connection is not broken, and will not be
	broken    chan struct{} // closed when it is
}

// transaction returns one whose connection is broken, whoever uses it, at the end of the tenure.
func (s *store) transaction(conn *pgxpool.Conn, c *queue.Contender) *transaction {
	t := &transaction{Conn: conn, tier: s.tier, contender: c, broken: make(chan struct{})}
	wire := conn.Conn().PgConn().Conn() // asked now: the pool takes conn back
	t.spare = sync.OnceValue(context.AfterFunc(c.Tenure(), func() {
		defer close(t.broken)
		wire.Close()
	}))
	return t
}

// end gives the connection back, unless that is left to somebody else: not before nobody breaks it any more, or else
// that may be somebody else's by then. The pool closes one that is in a transaction, which rolls that back.
func (t *transaction) end(ctx context.Context) {
	if t.taken.Swap(true) {
		return
	}
	if t.Conn.Conn().PgConn().TxStatus() != 'I' {
		ctx, cancel := context.WithTimeout(ctx, t.tier.Patience())
		defer cancel()
		t.Exec(ctx, "rollback")
	}
	if !t.spare() {
		<-t.broken
		t.Conn.Conn().Close(ctx) // the pool would take one that is idle for a good one
	}
	t.Release()
}

// commit commits the transaction if the server still has the contender. It does nothing if check returns an error.
func (t *transaction) commit(ctx context.Context, check func() error) error {
	err := t.contender.Write(ctx, check, func() (queue.Outcome, error) {
		if t.taken.Swap(true) {
			return queue.Failed, context.Cause(ctx)
		}
		defer t.Release()
		err := t.commitOnce()
		return classify(err), err
	})
	var refusal *pgconn.PgError
	if errors.As(err, &refusal) && refusal.Code == "TL001" {
		return cmp.Or(check(), t.contender.Missing())
	}
	return err
}

// commitOnce sends one message, so that the server has both statements or none.
func (t *transaction) commitOnce() error {
	ctx, cancel := context.WithTimeout(t.tier.Context(), t.tier.Patience())
	defer cancel()
	_, err := t.Conn.Conn().PgConn().Exec(ctx, fmt.Sprintf("select tierlock.guard('%s'); commit", t.contender.Ref().ID)).ReadAll()
	return err
}
