package mysqllock

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/waittest"
	"github.com/tierlock/tierlock/tier"
)

var wantErr = waittest.Err

// row creates a table with one row for the test. increment adds one to a number in the row, and is checks that number.
func row(t *testing.T) (increment func(*sql.Tx) error, is func(want int)) {
	t.Helper()
	db, name := shared.Get(t).db, "t_"+rand.Text()
	need.Get(db.ExecContext(soon(t), "CREATE TABLE "+name+" ENGINE = InnoDB SELECT 0 AS n"))(t)
	return func(tx *sql.Tx) error {
			_, err := tx.Exec("UPDATE " + name + " SET n = n + 1")
			return err
		}, func(want int) {
			t.Helper()
			var n int
			need.OK(t, db.QueryRowContext(soon(t), "SELECT n FROM "+name).Scan(&n))
			need.Equal(t, "committed", n, want)
		}
}

// unhurried is the TTL of processes that must keep their leases, even on a busy machine.
const unhurried = time.Minute

func begun(t *testing.T) *process { return begin(t, shared.Get(t).server.Addr(), unhurried) }

func TestTransactionIsCommittedWhileHeld(t *testing.T) {
	t.Parallel()
	hold := waittest.Hold(t, tier.New(begun(t)))
	works, committed := row(t)
	ctx := soon(t)
	need.OK(t, Tx(ctx, hold, works))
	committed(1)
	for _, f := range []func(*sql.Tx) error{
		func(tx *sql.Tx) error { works(tx); return errors.New("wrong") },
		func(tx *sql.Tx) error { works(tx); return tx.Rollback() },
	} {
		need.That(t, "no error", Tx(ctx, hold, f) != nil)
	}
	func() {
		defer func() { recover() }()
		Tx(ctx, hold, func(tx *sql.Tx) error { works(tx); panic("for a test") })
	}()
	ended, cancel := context.WithCancel(ctx)
	cancel()
	wantErr(t, Tx(ended, hold, works), context.Canceled)
	committed(1)
	need.OK(t, Tx(ctx, hold, works))
	waittest.Release(t, hold)
	wantErr(t, Tx(ctx, hold, works), tier.ErrReleased)
	committed(2)
}

func TestTransactionOfOneWhoHasTheLockNoMoreIsNotCommitted(t *testing.T) {
	t.Parallel()
	hold := waittest.Hold(t, tier.New(begun(t)))
	works, committed := row(t)
	err := Tx(soon(t), hold, func(tx *sql.Tx) error {
		need.Get(shared.Get(t).db.ExecContext(soon(t), "DELETE FROM tierlock_contender WHERE path = ?", waittest.Path(t)))(t)
		return works(tx)
	})
	wantErr(t, err, tier.ErrLost)
	committed(0)
}

// A holder may be paused between the guard and the commit. The server keeps the lock from other processes, and commits a request that it
// has received.
func TestNobodyGetsTheLockBetweenTheGuardAndTheCommit(t *testing.T) {
	t.Parallel()
	p := begun(t)
	hold := waittest.Hold(t, tier.New(p))
	db := shared.Get(t).db
	guard := need.Get(db.BeginTx(soon(t), nil))(t)
	defer guard.Rollback()
	var session string
	need.OK(t, guard.QueryRow("SELECT session FROM tierlock_contender WHERE path = ? LOCK IN SHARE MODE", waittest.Path(t)).Scan(&session))
	released := make(chan error, 1)
	go func() { released <- hold.Release() }()
	select {
	case <-released:
		t.Error("the lock was given up while a guarded transaction was about to commit")
	case <-time.After(300 * time.Millisecond):
	}
	need.OK(t, guard.Commit())
	need.OK(t, <-released)
}

func TestOutcomeIsUnknownWhenTheCommitIsNotAnswered(t *testing.T) {
	t.Parallel()
	p := begun(t)
	hold := waittest.Hold(t, tier.New(p))
	works, committed := row(t)
	err := Tx(soon(t), hold, func(tx *sql.Tx) error {
		err := works(tx)
		p.wire.messages(func() bool { return true }) // the answer to the commit is lost
		return err
	})
	p.wire.messages(nil)
	wantErr(t, err, tier.ErrUnknown)
	committed(1)
}

// While a guarded transaction is open, other contenders may queue behind the holder, and the session is renewed.
func TestTransactionIsCommittedWhateverOthersDoMeanwhile(t *testing.T) {
	t.Parallel()
	p, other := begin(t, shared.Get(t).server.Addr(), 2*ttl), begun(t)
	hold := waittest.Hold(t, tier.New(p))
	works, committed := row(t)
	var waiter *waittest.Wait
	need.OK(t, Tx(soon(t), hold, func(tx *sql.Tx) error {
		need.OK(t, works(tx))
		need.OK(t, tx.QueryRow("SELECT COUNT(*) FROM tierlock_contender").Scan(new(int)))
		waiter = waittest.Queue(t, other.at(t, waittest.Path(t)), func() int {
			return ask[int](t, shared.Get(t).db, "SELECT COUNT(*) FROM tierlock_contender WHERE path = ?", waittest.Path(t))
		})
		time.Sleep(2 * ttl) // several renewals happen meanwhile
		return nil
	}))
	committed(1)
	waittest.Release(t, hold)
	waittest.Release(t, waiter.Must(t))
}

func TestTxChecksAllLocksOfABundle(t *testing.T) {
	t.Parallel()
	db, name := shared.Get(t).db, "t_"+rand.Text()
	run(t, db, "CREATE TABLE "+name+" ENGINE = InnoDB SELECT 0 AS n")
	waittest.Guarded{
		Write: func(g tier.Guard) error {
			return Tx(soon(t), g, func(tx *sql.Tx) error {
				_, err := tx.Exec("UPDATE " + name + " SET n = n + 1")
				return err
			})
		},
		Count: func() int { return ask[int](t, db, "SELECT n FROM "+name) },
		Break: func(path string) {
			need.Get(db.ExecContext(soon(t), "DELETE FROM tierlock_contender WHERE path = ?", path))(t)
		},
	}.ChecksAllLocks(t, tier.New(begun(t)), tier.New(begun(t)))
}
