package pglock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/waittest"
	"github.com/tierlock/tierlock/tier"
)

// table creates a table for the test, to which its transactions write.
func table(t *testing.T) string {
	t.Helper()
	name := "t_" + newID()
	exec(t, outside(t), "CREATE TABLE "+name+" AS SELECT 0 AS n")
	return name
}

func value(t *testing.T, table string) int {
	t.Helper()
	return ask[int](t, outside(t), "SELECT n FROM "+table)
}

func increment(ctx context.Context, table string) func(pgx.Tx) error {
	return func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE "+table+" SET n = n + 1")
		return err
	}
}

// proof returns the SQL arguments with which tierlock.guard checks a contender.
func proof(c *queue.Contender) string {
	return c.Store().(interface {
		proof(queue.Ref) string
	}).proof(c.Ref())
}

func TestTransactionIsCommittedWhileHeld(t *testing.T) {
	forEach(t, func(t *testing.T, f flavour) {
		hold := f.start(t, sharedURL(t), tier.WithLeaseTTL(unhurried)).holds(t)
		tab, ctx, wrong := table(t), soon(t), errors.New("wrong")
		committed := func(want int) {
			t.Helper()
			need.Equal(t, "committed", value(t, tab), want)
		}
		works := increment(ctx, tab)
		need.OK(t, Tx(ctx, hold, works))
		committed(1)
		fails := []func(pgx.Tx) error{
			func(tx pgx.Tx) error { works(tx); return wrong },
			func(tx pgx.Tx) error { works(tx); tx.Exec(ctx, "nonsense"); return nil },
			func(tx pgx.Tx) error { works(tx); return tx.Commit(ctx) },
			func(tx pgx.Tx) error { works(tx); return tx.Rollback(ctx) },
		}
		for _, f := range fails {
			need.That(t, "no error", Tx(ctx, hold, f) != nil)
		}
		func() {
			defer func() { recover() }()
			Tx(ctx, hold, func(tx pgx.Tx) error { works(tx); panic("for a test") })
		}()
		ended, cancel := context.WithCancel(ctx)
		cancel()
		wantErr(t, Tx(ended, hold, works), context.Canceled)
		committed(1)
		wantErr(t, Tx(ctx, hold, works), nil)
		mustRelease(t, hold)
		wantErr(t, Tx(ctx, hold, works), tier.ErrReleased)
		committed(2)
	})
}

// lose makes the process believe that a contender is lost, although the server still has it.
func lose(p *process, c *queue.Contender) {
	p.Tell(queue.View{ID: c.Ref().ID, Token: c.Token(), Err: errors.New("for a test")})
}

// underOne is like Tx, but for one contender. check returns an error if the process does not hold the lock any more.
func underOne(ctx context.Context, c *queue.Contender, check func() error, f func(pgx.Tx) error) error {
	return transact(ctx, c.Store().(guarded), []*queue.Contender{c}, check, f)
}

// At the end of a hold, its connection is broken. It must not go back to the pool, where another user would get a broken connection.
func TestConnectionThatIsBeingBrokenIsNotGivenBack(t *testing.T) {
	t.Parallel()
	p := start(t, tier.WithLeaseTTL(unhurried))
	c := p.mustAcquire(t)
	closing, goOn := make(chan struct{}), make(chan struct{})
	var closes atomic.Int64
	var broken uint32
	wantErr(t, underOne(soon(t), c, c.Err, func(tx pgx.Tx) error {
		broken = tx.Conn().PgConn().PID()
		p.network.onClose(func() {
			if closes.Add(1) == 1 { // the connection is closed a second time when it is given back
				close(closing)
				<-goOn
			}
		})
		lose(p, c)
		<-closing
		return nil
	}), second.ErrLost)
	need.That(t, "the next one has the same", need.Get(backend(soon(t), p.pool))(t) != broken)
	close(goOn)
	c.Release()
}

// A process that has lost the lock cannot commit. There are two cases: the server knows of the loss before the process does, or the process
// has handed the lock off to another goroutine, under the same contender.
func TestTransactionOfOneWhoHasTheLockNoMoreIsNotCommitted(t *testing.T) {
	t.Parallel()
	type row struct {
		flavour
		ends  func(t *testing.T, p *process, c *queue.Contender)
		check error // what check returns at the end if the server does not know of the loss
	}
	handedOn := func(*testing.T, *process, *queue.Contender) {}
	need.Each(t, map[string]row{
		"deleted": {tables, func(t *testing.T, _ *process, c *queue.Contender) {
			exec(t, outside(t), "DELETE FROM tierlock.contender WHERE id = $1", c.Ref().ID)
		}, nil},
		"session over": {tables, func(t *testing.T, p *process, _ *queue.Contender) {
			exec(t, outside(t), "UPDATE tierlock.session SET expires = clock_timestamp() - interval '1 hour' WHERE id = $1", p.session(t))
		}, nil},
		"session of its own over": {advisories, func(t *testing.T, p *process, _ *queue.Contender) {
			pid := contenders(t, p.at(t, lockPath(t)))[0].ID
			p.network.mute("\x00try") // keeps the process from learning of the loss
			endSession(t, pid)
		}, nil},
		"handed on":           {tables, handedOn, second.ErrReleased},
		"handed on, advisory": {advisories, handedOn, second.ErrReleased},
	}, func(t *testing.T, c row) {
		t.Parallel()
		p := c.start(t, sharedURL(t), tier.WithLeaseTTL(unhurried)) // long, because a renewal would show the loss
		held, tab := p.mustAcquire(t), table(t)
		checked := func() error { return nil }
		wantErr(t, underOne(soon(t), held, func() error { return checked() }, func(tx pgx.Tx) error {
			c.ends(t, p, held)
			checked = func() error { return c.check }
			return increment(soon(t), tab)(tx)
		}), cmp.Or(c.check, second.ErrLost))
		need.Equal(t, "committed", value(t, tab), 0)
		need.That(t, "not idle", held.Idle())
		need.Equal(t, fmt.Sprintf("whether it is lost: %v", held.Err()), errors.Is(held.Err(), second.ErrLost), c.check == nil)
		need.Equal(t, "whether Release says so", errors.Is(held.Release(), second.ErrLost), c.check == nil)
	})
}

// From the check in the guard to the end of its transaction, the next contender cannot get the lock.
func TestNobodyGetsTheLockBetweenTheGuardAndTheCommit(t *testing.T) {
	forEach(t, func(t *testing.T, f flavour) {
		p := f.start(t, sharedURL(t), tier.WithLeaseTTL(unhurried))
		c := p.mustAcquire(t)
		tx, guard := begun(t, outside(t)), "SELECT tierlock.guard("+proof(c)+")::text"
		ask[any](t, tx, guard)
		next := f.start(t, sharedURL(t), tier.WithLeaseTTL(unhurried)).waits(t)
		go c.Release()
		next.Pending(t)
		tx.Rollback(soon(t))
		mustRelease(t, next.Must(t))
		c = p.mustAcquire(t) // a new contender
		need.WantMention(t, need.ErrOf(outside(t).Exec(soon(t), guard)), "TL001")
		mustRelease(t, c)
	})
}

// The server may grant the lock to a waiter while a transaction of the previous hold is still open. The waiter becomes the holder only when
// that transaction has ended, however long that takes.
func TestWhoWaitsForATransactionKeepsItsPlace(t *testing.T) {
	t.Parallel()
	p, waiter := advise(t, sharedURL(t)), advise(t, sharedURL(t))
	c := p.mustAcquire(t)
	guarded := begun(t, outside(t))
	ask[any](t, guarded, "SELECT tierlock.guard("+proof(c)+")::text")
	next := waiter.waits(t)
	pid := contenders(t, p.at(t, lockPath(t)))[1].ID
	last := advise(t, sharedURL(t)).waits(t)
	go c.Release()
	eventually(t, "the server has granted it the lock", func() bool {
		return seen(t, outside(t), true) == 1 && seen(t, outside(t), false) == 1
	})
	s, key := c.Store().(*advisory), advisoryKey(lockPath(t))
	var queue []place
	eventually(t, "it waits for the transaction", func() bool {
		queue = need.Get(s.look(soon(t), key))(t)[key]
		return len(queue) == 2 && !queue[0].granted
	})
	need.Equal(t, "the first one", queue[0].ID, pid)
	e := &entry{session: &serverConn{pid: pid, bound: time.Hour}, store: &advisory{}, unseen: time.Now()}
	e.stand(queue)
	need.That(t, "it is missed", e.unseen.IsZero())
	guarded.Rollback(soon(t))
	mustRelease(t, next.Must(t))
	mustRelease(t, last.Must(t))
}

// The guard first reads the name of a session, and then whether the session has the lock. In between, the session may get the lock for its
// next hold. The name therefore has to change before the session unlocks.
func TestTokenGoesBeforeTheLock(t *testing.T) {
	t.Parallel()
	conn, name := need.Get(pgx.Connect(soon(t), sharedURL(t)))(t), "s_"+newID()
	defer conn.Close(soon(t))
	need.Get(conn.Exec(soon(t), fmt.Sprintf(`CREATE SCHEMA %[1]s;
		CREATE FUNCTION %[1]s.pg_advisory_unlock(bigint) RETURNS boolean LANGUAGE sql AS
			$$ SELECT current_setting('application_name') = 'no token' $$;
		CREATE FUNCTION %[1]s.pg_advisory_unlock_shared(bigint) RETURNS boolean LANGUAGE sql AS 'SELECT %[1]s.pg_advisory_unlock($1)';
		SET search_path = %[1]s, pg_catalog; SET application_name = 'tierlock 7 0 1'`, name)))(t)
	for _, reads := range []string{"false", "true"} {
		args := [][]byte{[]byte("1"), []byte("no token"), []byte(reads)}
		r := conn.PgConn().ExecParams(soon(t), statements["leave"], args, nil, nil, nil).Read()
		need.OK(t, r.Err)
		need.Equal(t, "whether the token was gone once it unlocked, reading "+reads, string(r.Rows[0][1]), "t")
		need.Get(conn.Exec(soon(t), "SET application_name = 'tierlock 7 0 1'"))(t)
	}
}

// The guard reads the present state, even if the transaction has read an earlier one. It also fails if the session has acquired the lock
// again since then.
func TestGuardLooksAnew(t *testing.T) {
	t.Parallel()
	p := advise(t, sharedURL(t))
	c := p.mustAcquire(t)
	tx := begun(t, outside(t))
	need.Get(tx.Exec(soon(t), "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))(t)
	const named = "SELECT application_name FROM pg_stat_activity WHERE pid = $1::text::int"
	pid := contenders(t, p.at(t, lockPath(t)))[0].ID
	before := ask[string](t, tx, named, pid)
	mustRelease(t, c)
	again := p.mustAcquire(t)
	need.Equal(t, "the session that has it again", contenders(t, p.at(t, lockPath(t)))[0].ID, pid)
	need.Equal(t, "the name that the transaction still sees", ask[string](t, tx, named, pid), before)
	need.WantMention(t, need.ErrOf(tx.Exec(soon(t), "SELECT tierlock.guard("+proof(c)+")")), "TL001")
	mustRelease(t, again)
}

// A process locks a row and is then disconnected, which keeps it from ending its transaction. Timeouts of the server end the transaction.
// One case has deferred constraints, because no statement_timeout applies to a commit that checks these.
func TestTransactionThatIsStuckLocksNobodyOut(t *testing.T) {
	t.Parallel()
	type row struct {
		flavour
		deferred bool
	}
	need.Each(t, map[string]row{
		"in the function": {tables, false}, "in the commit": {tables, true}, "in the commit, advisory": {advisories, true},
	}, func(t *testing.T, c row) {
		t.Parallel()
		p, q, tab, deferred := c.start(t, sharedURL(t)), c.start(t, sharedURL(t)), table(t), c.deferred
		if deferred {
			exec(t, outside(t), `CREATE FUNCTION `+tab+`() RETURNS trigger LANGUAGE plpgsql AS
					'BEGIN IF NEW.n = 1 THEN PERFORM pg_sleep(30); END IF; RETURN NULL; END'`)
			exec(t, outside(t), "CREATE CONSTRAINT TRIGGER stuck AFTER UPDATE ON "+tab+
				" DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION "+tab+"()")
		}
		hold := p.holds(t)
		result, stuck, end := make(chan error, 1), make(chan struct{}), make(chan struct{})
		goOn := sync.OnceFunc(func() { close(end) })
		t.Cleanup(goOn)
		go func() {
			result <- Tx(soon(t), hold, func(tx pgx.Tx) error {
				err := increment(soon(t), tab)(tx)
				close(stuck)
				if !deferred {
					<-end
				}
				return err
			})
		}()
		<-stuck
		eventually(t, "it is stuck", func() bool {
			const checks = "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE relation = $1::regclass AND query = $2"
			return !deferred || ask[int](t, outside(t), checks, tab, checkDeferred) > 0
		})
		heal := p.network.sever()
		defer heal()
		begun := time.Now()
		next := q.holds(t)
		need.OK(t, Tx(soon(t), next, func(tx pgx.Tx) error {
			_, err := tx.Exec(soon(t), "UPDATE "+tab+" SET n = n + 2")
			return err
		}))
		need.AtMost(t, "until the next one had the row", time.Since(begun), 3*ttl)
		goOn()
		heal()
		wantErr(t, <-result, tier.ErrLost)
		need.Equal(t, "the value that the next owner has written", value(t, tab), 2)
		mustRelease(t, next)
	})
}

// A transaction whose commit gets no answer may have been committed. The error has to match ErrUnknown.
func TestOutcomeIsUnknownWhenTheCommitIsNotAnswered(t *testing.T) {
	forEach(t, testUnansweredCommit)
}

func testUnansweredCommit(t *testing.T, f flavour) {
	p := f.start(t, sharedURL(t), tier.WithLeaseTTL(unhurried)) // long, because a renewal would disturb the test
	hold, tab := p.holds(t), table(t)
	commit := func(ctx context.Context, answered func() (lose bool)) error {
		err := Tx(ctx, hold, func(tx pgx.Tx) error {
			err := increment(ctx, tab)(tx)
			p.network.answersTo("tierlock.guard(", answered)
			return err
		})
		need.WantErr(t, "the commit", err, tier.ErrUnknown)
		need.That(t, fmt.Sprintf("lost, or idle: %v", err), !errors.Is(err, tier.ErrLost) && !waittest.Grant(hold).Idle())
		p.network.messages(nil)
		return err
	}
	ctx, cancel := context.WithCancel(soon(t))
	late := make(chan struct{})
	wantErr(t, commit(ctx, func() bool {
		cancel()
		<-late
		return false
	}), context.Canceled)
	close(late)
	eventually(t, "the outcome is known", waittest.Grant(hold).Idle)

	stopper := begun(t, outside(t))
	need.Get(stopper.Exec(soon(t), "SELECT FROM tierlock.contender WHERE path = $1 FOR UPDATE", lockPath(t)))(t)
	const fence = "SELECT pg_advisory_xact_lock(($1::bigint >> 32)::int, ($1 << 32 >> 32)::int)"
	need.Get(stopper.Exec(soon(t), fence, advisoryKey(lockPath(t))))(t)
	committing := make(chan error, 1)
	go func() { committing <- Tx(soon(t), hold, func(pgx.Tx) error { return nil }) }()
	eventually(t, "a commit that is refused", func() bool {
		const waiting = "SELECT count(pg_cancel_backend(pid)) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE NOT granted AND query LIKE $1"
		return ask[int](t, outside(t), waiting, "%tierlock.guard("+proof(waittest.Grant(hold).(*queue.Contender))+"%") == 1
	})
	err := <-committing
	need.That(t, fmt.Sprintf("a commit that is refused: %v", err),
		err != nil && !errors.Is(err, tier.ErrUnknown) && !errors.Is(err, tier.ErrLost) && waittest.Grant(hold).Idle())
	stopper.Rollback(soon(t))

	commit(soon(t), func() bool { return true })
	mustRelease(t, hold)
	need.Equal(t, "committed", value(t, tab), 2)
}
