package pglock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tierlock/tierlock/internal/need"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/tier"
)

// A table of the test's own, which its transactions write to.
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

// transact runs a transaction under a contender of a lock in tables.
func transact(t *testing.T, c *queue.Contender, check func() error, f func(pgx.Tx) error) error {
	return c.Store().(*store).Tx(soon(t), c, check, f)
}

func TestTransactionIsCommittedWhileHeld(t *testing.T) {
	forEach(t, func(t *testing.T, f flavour) {
		hold := f.start(t, sharedURL(t), WithLeaseTTL(unhurried)).holds(t)
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

// lose has a contender lost for another reason than those that the server knows.
func lose(p *process, c *queue.Contender) {
	p.Tell(queue.View{ID: c.Ref().ID, Token: c.Token(), Err: errors.New("for a test")})
}

// It would be somebody else's by then, or nobody's.
func TestConnectionThatIsBeingBrokenIsNotGivenBack(t *testing.T) {
	t.Parallel()
	p := start(t, WithLeaseTTL(unhurried))
	c := p.mustAcquire(t)
	closing, goOn := make(chan struct{}), make(chan struct{})
	var closes atomic.Int64
	result := make(chan error, 1)
	go func() {
		result <- transact(t, c, c.Err, func(pgx.Tx) error {
			p.network.onClose(func() {
				if closes.Add(1) == 1 { // else it is who gives the connection back
					close(closing)
					<-goOn
				}
			})
			lose(p, c)
			<-closing
			return nil
		})
	}()
	<-closing
	time.AfterFunc(50*time.Millisecond, func() { close(goOn) })
	wantErr(t, <-result, second.ErrLost)
	select {
	case <-goOn:
	default:
		t.Error("ended before the connection was broken")
	}
	c.Release()
	<-goOn
}

// The process does not know yet, the server does; or within the process the lock was handed on, with the same contender.
func TestTransactionOfOneWhoHasTheLockNoMoreIsNotCommitted(t *testing.T) {
	t.Parallel()
	need.Each(t, map[string]func(t *testing.T, p *process, c *queue.Contender) (check, want error){
		"deleted": func(t *testing.T, _ *process, c *queue.Contender) (check, want error) {
			exec(t, outside(t), "DELETE FROM tierlock.contender WHERE id = $1", c.Ref().ID)
			return nil, second.ErrLost
		},
		"session over": func(t *testing.T, p *process, _ *queue.Contender) (check, want error) {
			exec(t, outside(t), "UPDATE tierlock.session SET expires = clock_timestamp() - interval '1 hour' WHERE id = $1", p.session(t))
			return nil, second.ErrLost
		},
		"handed on": func(*testing.T, *process, *queue.Contender) (check, want error) {
			return second.ErrReleased, second.ErrReleased
		},
	}, func(t *testing.T, ends func(t *testing.T, p *process, c *queue.Contender) (check, want error)) {
		t.Parallel()
		p := start(t, WithLeaseTTL(unhurried)) // no renewal tells it
		c, tab := p.mustAcquire(t), table(t)
		var checked, want error
		wantErr(t, transact(t, c, func() error { return checked }, func(tx pgx.Tx) error {
			checked, want = ends(t, p, c)
			return increment(soon(t), tab)(tx)
		}), want)
		need.Equal(t, "committed", value(t, tab), 0)
		need.That(t, "not idle", c.Idle())
		lost := errors.Is(want, second.ErrLost)
		need.Equal(t, fmt.Sprintf("whether it is lost: %v", c.Err()), errors.Is(c.Err(), second.ErrLost), lost)
		need.Equal(t, "whether Release says so", errors.Is(c.Release(), second.ErrLost), lost)
	})
}

// What keeps the lock from the next one is the guard, from its look to the end of the transaction.
func TestNobodyGetsTheLockBetweenTheGuardAndTheCommit(t *testing.T) {
	t.Parallel()
	c := start(t).mustAcquire(t)
	tx := begun(t, outside(t))
	ask[any](t, tx, "SELECT tierlock.guard($1)::text", c.Ref().ID)
	next := start(t).waits(t)
	go c.Release()
	next.Pending(t)
	tx.Rollback(soon(t))
	mustRelease(t, next.Must(t))
}

// A process that is cut off has a row locked, and cannot tell the server. A commit checks what was deferred, for which no
// statement_timeout holds.
func TestTransactionThatIsStuckLocksNobodyOut(t *testing.T) {
	t.Parallel()
	need.Each(t, map[string]bool{"in the function": false, "in the commit": true}, func(t *testing.T, deferred bool) {
		t.Parallel()
		p, q, tab := start(t), start(t), table(t)
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
		need.Equal(t, "what the next one has written", value(t, tab), 2)
		mustRelease(t, next)
	})
}

// It may be committed, and the caller has to know what errors say so.
func TestOutcomeIsUnknownWhenTheCommitIsNotAnswered(t *testing.T) {
	t.Parallel()
	p := start(t, WithLeaseTTL(unhurried)) // so that nothing else is said meanwhile
	hold, tab := p.holds(t), table(t)
	commit := func(ctx context.Context, answered func() (lose bool)) error {
		err := Tx(ctx, hold, func(tx pgx.Tx) error {
			err := increment(ctx, tab)(tx)
			var answers atomic.Int32
			p.network.messages(func() bool { return answers.Add(1) == 2 && answered() }) // behind that of the check of what is deferred
			return err
		})
		need.WantErr(t, "the commit", err, tier.ErrUnknown)
		need.That(t, fmt.Sprintf("lost, or idle: %v", err), !errors.Is(err, tier.ErrLost) && !second.GrantOf(hold).Idle())
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
	eventually(t, "the outcome is known", second.GrantOf(hold).Idle)

	stopper := begun(t, outside(t))
	ask[any](t, stopper, "SELECT id::text FROM tierlock.contender WHERE path = $1 FOR UPDATE", lockPath(t))
	committing := make(chan error, 1)
	go func() { committing <- Tx(soon(t), hold, func(pgx.Tx) error { return nil }) }()
	eventually(t, "a commit that is refused", func() bool {
		const waiting = "SELECT count(pg_cancel_backend(pid)) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE NOT granted AND query LIKE $1"
		return ask[int](t, outside(t), waiting, "%tierlock.guard('"+second.GrantOf(hold).(*queue.Contender).Ref().ID+"%") == 1
	})
	err := <-committing
	need.That(t, fmt.Sprintf("a commit that is refused: %v", err),
		err != nil && !errors.Is(err, tier.ErrUnknown) && !errors.Is(err, tier.ErrLost) && second.GrantOf(hold).Idle())
	stopper.Rollback(soon(t))

	commit(soon(t), func() bool { return true })
	mustRelease(t, hold)
	need.Equal(t, "committed", value(t, tab), 2)
}
