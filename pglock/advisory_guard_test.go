package pglock

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tierlock/tierlock/internal/pgserver"
	"github.com/tierlock/tierlock/pglock/internal/advisory"
	"github.com/tierlock/tierlock/tier"
)

// holdAdvisory has the lock of the test, in a process that ends with the test.
func holdAdvisory(t *testing.T) (*advisor, *tier.Hold) {
	t.Helper()
	a := launchAdvisory(t, pgserver.PlainURL(server(t).Addr()), new(atomic.Int64))
	locks, err := tier.New(a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { locks.Close() })
	return a, mustHold(t, locks, lockPath(t))
}

func TestAdvisoryTransactionIsCommittedWhileHeld(t *testing.T) {
	t.Parallel()
	_, hold := holdAdvisory(t)
	table, ctx := table(t), soon(t)
	if err := Tx(ctx, hold, increment(ctx, table)); err != nil {
		t.Fatal(err)
	}
	mine := errors.New("mine")
	err := Tx(ctx, hold, func(tx pgx.Tx) error {
		if err := increment(ctx, table)(tx); err != nil {
			return err
		}
		return mine
	})
	if !errors.Is(err, mine) {
		t.Errorf("Tx of a function that fails: %v", err)
	}
	if err := Tx(ctx, hold, increment(ctx, table)); err != nil {
		t.Errorf("Tx after one that was rolled back: %v", err)
	}
	if n := value(t, table); n != 2 {
		t.Errorf("%d were committed, want 2", n)
	}
	if err := hold.Release(); err != nil {
		t.Fatal(err)
	}
	if err := Tx(ctx, hold, increment(ctx, table)); !errors.Is(err, tier.ErrReleased) {
		t.Errorf("Tx after Release: %v, want ErrReleased", err)
	}
	if n := value(t, table); n != 2 {
		t.Errorf("%d were committed, want 2", n)
	}
}

func TestAdvisoryTransactionOfASessionThatIsOverIsNotCommitted(t *testing.T) {
	t.Parallel()
	_, hold := holdAdvisory(t)
	table, ctx := table(t), soon(t)
	err := Tx(ctx, hold, func(tx pgx.Tx) error {
		if err := increment(ctx, table)(tx); err != nil {
			return err
		}
		exec(t, "SELECT pg_terminate_backend($1)", tx.Conn().PgConn().PID())
		return nil
	})
	if err == nil || !errors.Is(hold.Err(), tier.ErrLost) {
		t.Errorf("Tx: %v, the hold: %v; want ErrLost", err, hold.Err())
	}
	if n := value(t, table); n != 0 {
		t.Errorf("%d were committed", n)
	}
}

// The commit is done, and nobody hears of it. ErrLost would say that it is not.
func TestAnswerOfTheCommitIsLostWithAnAdvisoryLock(t *testing.T) {
	t.Parallel()
	_, hold := holdAdvisory(t)
	table, ctx := table(t), soon(t)
	exec(t, `CREATE OR REPLACE FUNCTION slow_check() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.5); RETURN NULL; END'`)
	exec(t, "CREATE CONSTRAINT TRIGGER slow AFTER UPDATE ON "+table+" DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION slow_check()")
	err := Tx(ctx, hold, func(tx pgx.Tx) error {
		wire := tx.Conn().PgConn().Conn()
		time.AfterFunc(ttl/10, func() { wire.Close() }) // in the commit
		return increment(ctx, table)(tx)
	})
	if err == nil || errors.Is(err, tier.ErrLost) {
		t.Errorf("Tx: %v, want that the outcome is unknown", err)
	}
	if !errors.Is(hold.Err(), tier.ErrLost) {
		t.Errorf("the hold: %v, want ErrLost", hold.Err())
	}
}

// The server ends the session only once the lease is over, so it could still commit.
func TestAdvisoryTransactionEndsWithTheLease(t *testing.T) {
	t.Parallel()
	_, hold := holdAdvisory(t)
	table := table(t)
	begun := time.Now()
	err := Tx(soon(t), hold, func(tx pgx.Tx) error {
		if err := increment(t.Context(), table)(tx); err != nil {
			return err
		}
		<-hold.Lost()
		return nil
	})
	if took := time.Since(begun); took > ttl {
		t.Errorf("the loss came after %v, want it within %v", took, ttl)
	}
	if !errors.Is(err, tier.ErrLost) {
		t.Errorf("Tx: %v, want ErrLost", err)
	}
	next := startAdvisory(t, pgserver.PlainURL(server(t).Addr())).mustAcquire(t, lockPath(t))
	if n := value(t, table); n != 0 {
		t.Errorf("%d were committed by one that has lost the lock", n)
	}
	mustRelease(t, next)
}

func TestStuckAdvisoryTransactionLocksNobodyOut(t *testing.T) {
	t.Parallel()
	_, hold := holdAdvisory(t)
	begun := time.Now()
	err := Tx(soon(t), hold, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "SELECT pg_sleep(60)")
		return err
	})
	if took := time.Since(begun); took > ttl || !errors.Is(err, tier.ErrLost) {
		t.Errorf("Tx: %v after %v, want ErrLost within %v", err, took, ttl)
	}
	mustRelease(t, startAdvisory(t, pgserver.PlainURL(server(t).Addr())).mustAcquire(t, lockPath(t)))
	if took := time.Since(begun); took > 2*ttl {
		t.Errorf("the next one has the lock after %v", took)
	}
}

func TestAdvisoryTransactionHasAWholeLease(t *testing.T) {
	t.Parallel()
	_, hold := holdAdvisory(t)
	time.Sleep(ttl / 10) // since when the lease has not been renewed, as a rule
	begun := time.Now()
	if err := Tx(soon(t), hold, func(pgx.Tx) error {
		if end := hold.Grant().ValidUntil(); end.Before(begun.Add(ttl - ttl/3 - time.Millisecond)) {
			t.Errorf("at the beginning the lease ends %v after it", end.Sub(begun))
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

func TestNobodyGetsAnAdvisoryLockDuringATransaction(t *testing.T) {
	t.Parallel()
	_, hold := holdAdvisory(t)
	other := startAdvisory(t, pgserver.PlainURL(server(t).Addr()))
	table, ctx := table(t), soon(t)
	granted, _ := other.waitAt(t, lockPath(t))
	released := make(chan error, 1)
	if err := Tx(ctx, hold, func(tx pgx.Tx) error {
		go func() { released <- hold.Release() }()
		select {
		case <-granted:
			t.Error("another one has the lock while the transaction is open")
		case <-time.After(ttl / 10):
		}
		return increment(ctx, table)(tx)
	}); !errors.Is(err, tier.ErrReleased) {
		t.Errorf("Tx: %v, want ErrReleased", err)
	}
	if err := <-released; err != nil {
		t.Errorf("Release: %v", err)
	}
	next := <-granted
	if n := value(t, table); n != 0 {
		t.Errorf("%d were committed by one that has given the lock up", n)
	}
	mustRelease(t, next)
}

func TestAdvisoryTransactionWhoseContextEndsLosesTheLock(t *testing.T) {
	t.Parallel()
	_, hold := holdAdvisory(t)
	ctx, cancel := context.WithTimeout(t.Context(), ttl/10)
	defer cancel()
	err := Tx(ctx, hold, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "SELECT pg_sleep(60)")
		return err
	})
	if err == nil || !errors.Is(hold.Err(), tier.ErrLost) {
		t.Errorf("Tx: %v, the hold: %v, want ErrLost", err, hold.Err())
	}
	eventually(t, "the lock is free", func() bool {
		return number(t, outside(t), "SELECT count(*) FROM pg_locks WHERE "+ofLock, advisory.KeyOf(lockPath(t))) == 0
	})
}
