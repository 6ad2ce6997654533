package pglock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/tier"
)

// locks are those of the process.
func (p *process) locks(t *testing.T, opts ...tier.Option) *tier.Registry {
	t.Helper()
	locks, err := tier.New(p.Tier, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { locks.Close() })
	return locks
}

func mustHold(t *testing.T, locks *tier.Registry, path string) *tier.Hold {
	t.Helper()
	hold, err := locks.Mutex(path).Acquire(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	return hold
}

// A table of the test's own, which its transactions write to.
func table(t *testing.T) string {
	t.Helper()
	name := "t_" + strings.ToLower(strings.ReplaceAll(t.Name(), "/", "_"))
	exec(t, "DROP TABLE IF EXISTS "+name) // of an earlier run
	exec(t, "CREATE TABLE "+name+" (n int)")
	exec(t, "INSERT INTO "+name+" VALUES (0)")
	return name
}

func value(t *testing.T, table string) (n int) {
	t.Helper()
	if err := outside(t).QueryRow(soon(t), "SELECT n FROM "+table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func increment(ctx context.Context, table string) func(pgx.Tx) error {
	return func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE "+table+" SET n = n + 1")
		return err
	}
}

func TestTransactionIsCommittedWhileHeld(t *testing.T) {
	hold := mustHold(t, start(t).locks(t), lockPath(t))
	tab := table(t)
	if err := Tx(soon(t), hold, increment(soon(t), tab)); err != nil {
		t.Fatal(err)
	}
	if n := value(t, tab); n != 1 {
		t.Errorf("%d, want 1", n)
	}
	wrong := errors.New("wrong")
	for _, f := range []func(pgx.Tx) error{
		func(tx pgx.Tx) error { increment(soon(t), tab)(tx); return wrong },
		func(tx pgx.Tx) error { increment(soon(t), tab)(tx); return tx.Commit(soon(t)) },
		func(tx pgx.Tx) error { increment(soon(t), tab)(tx); return tx.Rollback(soon(t)) },
		func(tx pgx.Tx) error { increment(soon(t), tab)(tx); tx.Exec(soon(t), "nonsense"); return nil },
	} {
		if err := Tx(soon(t), hold, f); err == nil {
			t.Error("no error")
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	wantErr(t, Tx(ended, hold, increment(soon(t), tab)), context.Canceled)
	mustRelease(t, hold.Grant())
	wantErr(t, Tx(soon(t), hold, increment(soon(t), tab)), second.ErrReleased)
	if n := value(t, tab); n != 1 {
		t.Errorf("%d after those that failed, want 1", n)
	}
}

// lose has a contender lost for another reason than those that the server knows.
func lose(p *process, c *queue.Contender) {
	p.Tell(queue.View{ID: c.Ref().ID, Token: c.Token(), Err: errors.New("for a test")})
}

// The loss and the end of the function meet, in many ways.
func TestLossWhileTheFunctionReturns(t *testing.T) {
	t.Parallel()
	p := start(t)
	for range 20 {
		var all sync.WaitGroup
		for i := range 4 { // as many as the pool has connections
			c := mustAcquire(t, p.at(t, fmt.Sprintf("%s-%d", lockPath(t), i)))
			all.Go(func() {
				err := guard{c, p.store}.Tx(soon(t), c.Err, func(tx pgx.Tx) error {
					tx.Exec(soon(t), "SELECT 1")
					switch i {
					case 0: // whoever waits for the loss
						go lose(p, c)
						<-c.Context().Done()
					case 1: // whoever does not know
						go lose(p, c)
						runtime.Gosched()
					case 2:
						exec(t, "DELETE FROM tierlock.contender WHERE id = $1", c.Ref().ID)
						c.Revoked()
						<-c.Context().Done()
					}
					return nil
				})
				if known := i != 1 && i != 3; err != nil && !errors.Is(err, second.ErrLost) || err == nil && known {
					t.Errorf("%d: %v, want ErrLost", i, err)
				}
				if err := c.Release(); i == 3 && err != nil {
					t.Errorf("a lock that is not lost: %v", err)
				}
			})
		}
		all.Wait()
	}
}

// It would be somebody else's by then, or nobody's.
func TestConnectionThatIsBeingBrokenIsNotGivenBack(t *testing.T) {
	t.Parallel()
	p := start(t)
	config := p.pool.Config()
	slow := &slowClose{closing: make(chan struct{}), goOn: make(chan struct{})}
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (_ net.Conn, err error) {
		slow.Conn, err = new(net.Dialer).DialContext(ctx, network, addr)
		return slow, err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	p.store.pool = pool
	c := mustAcquire(t, p.at(t, lockPath(t)))
	result := make(chan error, 1)
	go func() {
		result <- guard{c, p.store}.Tx(soon(t), c.Err, func(pgx.Tx) error {
			lose(p, c)
			<-slow.closing
			return nil
		})
	}()
	<-slow.closing
	time.AfterFunc(50*time.Millisecond, func() { close(slow.goOn) })
	wantErr(t, <-result, second.ErrLost)
	select {
	case <-slow.goOn:
	default:
		t.Error("ended before the connection was broken")
	}
	c.Release()
	<-slow.goOn
	pool.Close()
}

// slowClose is a connection that takes its time to close.
type slowClose struct {
	net.Conn
	once          sync.Once
	closing, goOn chan struct{}
}

func (c *slowClose) Close() error {
	c.once.Do(func() { close(c.closing) })
	<-c.goOn
	return c.Conn.Close()
}

// The process does not know yet, the server does.
func TestTransactionOfOneThatWasDeletedIsNotCommitted(t *testing.T) {
	p := start(t)
	c := mustAcquire(t, p.at(t, lockPath(t)))
	tab := table(t)
	err := guard{c, p.store}.Tx(soon(t), func() error { return nil }, func(tx pgx.Tx) error {
		exec(t, "DELETE FROM tierlock.contender WHERE id = $1", c.Ref().ID)
		return increment(soon(t), tab)(tx)
	})
	wantErr(t, err, second.ErrLost)
	wantErr(t, c.Err(), second.ErrLost)
	if n := value(t, tab); n != 0 {
		t.Errorf("%d was committed", n)
	}
	wantErr(t, c.Release(), second.ErrLost)
}

func TestTransactionOfOneWhoseSessionIsOverIsNotCommitted(t *testing.T) {
	p := start(t)
	c := mustAcquire(t, p.at(t, lockPath(t)))
	tab := table(t)
	err := guard{c, p.store}.Tx(soon(t), func() error { return nil }, func(tx pgx.Tx) error {
		exec(t, "UPDATE tierlock.session SET expires = clock_timestamp() - interval '1 hour' WHERE id = $1", p.session(t))
		return increment(soon(t), tab)(tx)
	})
	wantErr(t, err, second.ErrLost)
	if n := value(t, tab); n != 0 {
		t.Errorf("%d was committed", n)
	}
	c.Release()
}

// What keeps the lock from the next one is the guard, from its look to the end of the transaction.
func TestNobodyGetsTheLockBetweenTheGuardAndTheCommit(t *testing.T) {
	p, q := start(t), start(t)
	c := mustAcquire(t, p.at(t, lockPath(t)))
	tx, err := outside(t).Begin(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(soon(t), "SELECT tierlock.guard($1)", c.Ref().ID); err != nil {
		t.Fatal(err)
	}
	next := queueAt(t, q.at(t, lockPath(t)))
	go c.Release()
	next.pending(t)
	if err := tx.Commit(soon(t)); err != nil {
		t.Fatal(err)
	}
	mustRelease(t, next.must(t))
}

func TestLongTransactionKeepsTheLease(t *testing.T) {
	t.Parallel()
	hold := mustHold(t, start(t).locks(t), lockPath(t))
	other := queueAt(t, start(t).at(t, lockPath(t)))
	tab := table(t)
	if err := Tx(soon(t), hold, func(tx pgx.Tx) error {
		for end := time.Now().Add(2 * ttl); time.Now().Before(end); { // each statement shorter than the lease
			if _, err := tx.Exec(soon(t), "SELECT pg_sleep(0.2)"); err != nil {
				return err
			}
		}
		return increment(soon(t), tab)(tx)
	}); err != nil {
		t.Fatal(err)
	}
	other.pending(t)
	if n := value(t, tab); n != 1 {
		t.Errorf("%d, want 1", n)
	}
	if err := hold.Release(); err != nil {
		t.Error(err)
	}
	mustRelease(t, other.must(t))
}

func TestTransactionThatIsStuckLocksNobodyOut(t *testing.T) {
	t.Parallel()
	p, q := start(t), start(t)
	hold := mustHold(t, p.locks(t), lockPath(t))
	tab := table(t)
	result := make(chan error, 1)
	stuck, end := make(chan struct{}), make(chan struct{})
	goOn := sync.OnceFunc(func() { close(end) })
	t.Cleanup(goOn)
	go func() {
		result <- Tx(soon(t), hold, func(tx pgx.Tx) error {
			err := increment(soon(t), tab)(tx)
			close(stuck)
			<-end
			return err
		})
	}()
	<-stuck
	heal := p.line.sever() // so that nobody tells the server either
	defer heal()
	begun := time.Now()
	next := mustHold(t, q.locks(t), lockPath(t))
	if err := Tx(soon(t), next, increment(soon(t), tab)); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > 3*ttl {
		t.Errorf("the next one had the row after %v", took)
	}
	goOn()
	wantErr(t, <-result, tier.ErrLost)
	if n := value(t, tab); n != 1 {
		t.Errorf("%d, want what the next one has written", n)
	}
	if err := next.Release(); err != nil {
		t.Error(err)
	}
}

// Within the process the lock may have been handed on meanwhile, with the same contender.
func TestTransactionOfAHoldThatHasEndedIsNotCommitted(t *testing.T) {
	p := start(t)
	c := mustAcquire(t, p.at(t, lockPath(t)))
	tab := table(t)
	var ended error
	err := guard{c, p.store}.Tx(soon(t), func() error { return ended }, func(tx pgx.Tx) error {
		ended = second.ErrReleased
		return increment(soon(t), tab)(tx)
	})
	wantErr(t, err, second.ErrReleased)
	if n := value(t, tab); n != 0 {
		t.Errorf("%d was committed", n)
	}
	if !c.Idle() {
		t.Error("not idle")
	}
	mustRelease(t, c)
}

// A commit checks what was deferred, for which no statement_timeout holds.
func TestCommitThatIsStuckLocksNobodyOut(t *testing.T) {
	t.Parallel()
	p, q := start(t), start(t)
	tab := table(t)
	exec(t, `CREATE OR REPLACE FUNCTION stuck_check() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(30); RETURN NULL; END'`)
	exec(t, "CREATE CONSTRAINT TRIGGER stuck AFTER UPDATE ON "+tab+" DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION stuck_check()")
	hold := mustHold(t, p.locks(t), lockPath(t))
	result := make(chan error, 1)
	go func() { result <- Tx(soon(t), hold, increment(soon(t), tab)) }()
	eventually(t, "a check under way", func() bool {
		var n int
		err := outside(t).QueryRow(soon(t), "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND query = $1", checkDeferred).Scan(&n)
		return err == nil && n == 1
	})
	heal := p.line.sever() // so that nobody tells the server either
	begun := time.Now()
	mustRelease(t, mustAcquire(t, q.at(t, lockPath(t))))
	if took := time.Since(begun); took > 3*ttl {
		t.Errorf("the next one had the lock after %v", took)
	}
	heal()
	wantErr(t, <-result, tier.ErrLost)
}

// The statement ends on the server, too, when the lock is lost in the middle of it.
func TestStatementEndsWithTheLease(t *testing.T) {
	t.Parallel()
	hold := mustHold(t, start(t).locks(t), lockPath(t))
	err := Tx(soon(t), hold, func(tx pgx.Tx) error {
		_, err := tx.Exec(soon(t), "SELECT pg_sleep(60)")
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "statement timeout") {
		t.Errorf("%v, want a statement timeout", err)
	}
	if err := hold.Release(); err != nil {
		t.Error(err)
	}
}

// Only then: it may be committed, and the caller has to know what errors say so.
func TestOutcomeIsUnknownWhenTheCommitIsNotAnswered(t *testing.T) {
	t.Parallel()
	p := start(t, WithLeaseTTL(time.Minute))
	hold := mustHold(t, p.locks(t), lockPath(t))
	tab := table(t)
	ctx, cancel := context.WithCancel(soon(t))
	late := make(chan struct{})
	answer := sync.OnceFunc(func() { close(late) })
	t.Cleanup(answer)
	err := Tx(ctx, hold, func(tx pgx.Tx) error {
		err := increment(soon(t), tab)(tx)
		var answers atomic.Int32
		p.line.messages(func() bool {
			if answers.Add(1) == 2 { // behind that of the check of what is deferred
				cancel()
				<-late
			}
			return false
		})
		return err
	})
	wantErr(t, err, tier.ErrUnknown)
	wantErr(t, err, context.Canceled)
	if errors.Is(err, tier.ErrLost) || hold.Grant().Idle() {
		t.Errorf("%v; idle: %t", err, hold.Grant().Idle())
	}
	answer()
	p.line.messages(nil)
	eventually(t, "the outcome is known", hold.Grant().Idle)

	exec(t, "ALTER TABLE "+tab+" ADD CONSTRAINT few CHECK (n < 2)")
	if err := Tx(soon(t), hold, increment(soon(t), tab)); err == nil || errors.Is(err, tier.ErrUnknown) || errors.Is(err, tier.ErrLost) {
		t.Errorf("a statement that is refused: %v", err)
	}
	stopper := begun(t, outside(t))
	mustExec(t, stopper, "SELECT id::text FROM tierlock.contender WHERE path = $1 FOR UPDATE", lockPath(t))
	committing := make(chan error, 1)
	go func() { committing <- Tx(soon(t), hold, func(pgx.Tx) error { return nil }) }()
	eventually(t, "a commit that is refused", func() bool {
		return mustExec(t, outside(t), "SELECT count(pg_cancel_backend(pid)) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE NOT granted AND query LIKE '%tierlock.guard(''"+
			hold.Grant().(*queue.Contender).Ref().ID+"%'") == int64(1)
	})
	err = <-committing
	stopper.Rollback(soon(t))
	if err == nil || errors.Is(err, tier.ErrUnknown) || errors.Is(err, tier.ErrLost) || !hold.Grant().Idle() {
		t.Errorf("a commit that is refused: %v", err)
	}
	if err := hold.Release(); err != nil {
		t.Error(err)
	}
}

func TestAnswerOfTheCommitIsLost(t *testing.T) {
	p := start(t, WithLeaseTTL(time.Minute)) // so that nothing else is said meanwhile
	locks := p.locks(t)
	hold := mustHold(t, locks, lockPath(t))
	tab := table(t)
	err := Tx(soon(t), hold, func(tx pgx.Tx) error {
		err := increment(soon(t), tab)(tx)
		var answers atomic.Int32
		p.line.messages(func() bool { return answers.Add(1) == 2 }) // behind that of the check of what is deferred
		return err
	})
	p.line.messages(nil)
	wantErr(t, err, tier.ErrUnknown)
	if errors.Is(err, tier.ErrLost) {
		t.Error(err)
	}
	if hold.Grant().Idle() {
		t.Errorf("the grant is idle, though the transaction may yet be committed: %v", err)
	}
	if err := hold.Release(); err != nil {
		t.Error(err)
	}
	if n := value(t, tab); n != 1 {
		t.Errorf("%d, want 1", n)
	}
}
