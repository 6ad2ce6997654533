package pglock

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

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
	_, hold := holdTapped(t)
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

// A wiretap sees the connections of a process.
type wiretap struct {
	committing func()      // called once a commit is sent, whose answer is lost
	closing    func()      // called before one is closed
	lost       atomic.Bool // nothing is heard any more
}

type tapped struct {
	net.Conn
	tap *wiretap
}

func (c tapped) Write(b []byte) (int, error) {
	commits := c.tap.committing != nil && bytes.Contains(b, []byte("commit\x00"))
	if commits {
		c.tap.lost.Store(true)
	}
	n, err := c.Conn.Write(b)
	if commits {
		c.tap.committing()
	}
	return n, err
}

func (c tapped) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.tap.lost.Load() {
		return 0, net.ErrClosed
	}
	return n, err
}

func (c tapped) Close() error {
	if c.tap.closing != nil {
		c.tap.closing()
	}
	return c.Conn.Close()
}

// holdTapped has the lock of the test for as long as that takes, over connections that are tapped. The tap is set
// before anything is sent under the lock.
func holdTapped(t *testing.T) (*wiretap, *tier.Hold) {
	t.Helper()
	config, err := pgxpool.ParseConfig(pgserver.PlainURL(server(t).Addr()))
	if err != nil {
		t.Fatal(err)
	}
	tap := new(wiretap)
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return tapped{conn, tap}, err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	locks, err := NewAdvisory(pool, WithLeaseTTL(unhurried))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { locks.Close() })
	return tap, mustHold(t, locks, lockPath(t))
}

func endSession(t *testing.T, pid uint32) {
	t.Helper()
	exec(t, "SELECT pg_terminate_backend($1)", pid)
	eventually(t, "the session is over", func() bool {
		return number(t, outside(t), "SELECT count(*) FROM pg_stat_activity WHERE pid = $1", pid) == 0
	})
}

// Whoever gets ErrUnknown has to look, and whoever gets another error need not.
func TestOutcomeOfAnAdvisoryTransaction(t *testing.T) {
	t.Parallel()
	mine := errors.New("mine")
	type scene struct {
		*testing.T
		hold  *tier.Hold
		tap   *wiretap
		table string
		end   context.CancelCauseFunc // of the context of the transaction
	}
	for name, c := range map[string]struct {
		before   func(scene)
		during   func(scene, pgx.Tx) error
		want     []error
		text     string
		survives bool
	}{
		"the answer of the commit is lost": {
			before: func(s scene) { s.tap.committing = func() {} },
			want:   []error{tier.ErrUnknown},
		},
		"the context ends in the commit": {
			before: func(s scene) {
				s.tap.committing = func() {
					s.end(mine)
					<-s.hold.Lost()
				}
			},
			want: []error{tier.ErrUnknown, mine},
		},
		"the context ends before the commit": {
			during: func(s scene, _ pgx.Tx) error {
				s.end(mine)
				return nil
			},
			want: []error{tier.ErrLost, mine},
		},
		"the function fails as the context ends": {
			during: func(s scene, tx pgx.Tx) error {
				time.AfterFunc(20*time.Millisecond, func() { s.end(mine) })
				_, err := tx.Exec(s.Context(), "SELECT pg_sleep(60)")
				return err
			},
			want: []error{tier.ErrLost, mine},
		},
		"the session is over before": {
			before: func(s scene) {
				endSession(s.T, uint32(number(s.T, outside(s), "SELECT pid FROM pg_locks WHERE "+ofLock, advisory.KeyOf(s.hold.Path()))))
			},
			want: []error{tier.ErrLost}, text: "the session at the server is over",
		},
		"the session is over meanwhile": {
			during: func(s scene, tx pgx.Tx) error {
				endSession(s.T, tx.Conn().PgConn().PID())
				return nil
			},
			want: []error{tier.ErrLost}, text: "57P01",
		},
		"the function fails once the session is over": {
			during: func(s scene, tx pgx.Tx) error {
				endSession(s.T, tx.Conn().PgConn().PID())
				if err := increment(s.Context(), s.table)(tx); err == nil {
					s.Error("the session is not over")
				}
				return mine
			},
			want: []error{tier.ErrLost, mine},
		},
		"the function fails": {
			during: func(scene, pgx.Tx) error { return mine },
			want:   []error{mine}, survives: true,
		},
		"the server refuses what was deferred": {
			before: func(s scene) { exec(s, "ALTER TABLE "+s.table+" ADD UNIQUE (n) DEFERRABLE INITIALLY DEFERRED") },
			during: func(s scene, tx pgx.Tx) error {
				_, err := tx.Exec(s.Context(), "INSERT INTO "+s.table+" VALUES (1)")
				return err
			},
			text: "23505", survives: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tap, hold := holdTapped(t)
			ctx, end := context.WithCancelCause(soon(t))
			defer end(nil)
			s := scene{t, hold, tap, table(t), end}
			if c.before != nil {
				c.before(s)
			}
			err := Tx(ctx, hold, func(tx pgx.Tx) error {
				err := increment(ctx, s.table)(tx)
				if err == nil && c.during != nil {
					err = c.during(s, tx)
				}
				return err
			})
			if err == nil || !strings.Contains(err.Error(), c.text) {
				t.Fatalf("Tx: %v, want %q", err, c.text)
			}
			for _, is := range []error{tier.ErrUnknown, tier.ErrLost, mine} {
				if errors.Is(err, is) != slices.Contains(c.want, is) {
					t.Errorf("Tx: %v, want %v", err, c.want)
				}
			}
			if lost := hold.Err(); errors.Is(lost, tier.ErrLost) == c.survives {
				t.Errorf("the hold: %v, want it to survive: %v", lost, c.survives)
			}
			if n := value(t, s.table); n != 0 && !errors.Is(err, tier.ErrUnknown) {
				t.Errorf("%d were committed", n)
			}
		})
	}
}

// Once its end of the connection is closed, the server gives the lock to the next one.
func TestHolderKnowsBeforeAnAdvisoryTransactionClosesTheConnection(t *testing.T) {
	t.Parallel()
	tap, hold := holdTapped(t)
	closed := make(chan error, 10)
	tap.closing = func() { closed <- hold.Err() }
	ctx, cancel := context.WithCancel(soon(t))
	Tx(ctx, hold, func(pgx.Tx) error {
		cancel()
		if err := <-closed; !errors.Is(err, tier.ErrLost) {
			t.Errorf("the connection is closed while the hold says %v", err)
		}
		return nil
	})
}

// The driver closes the connection then, in the background.
func TestHolderKnowsWhenTheContextOfAStatementHasEnded(t *testing.T) {
	t.Parallel()
	_, hold := holdTapped(t)
	err := Tx(soon(t), hold, func(tx pgx.Tx) error {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if _, err := tx.Exec(ctx, "SELECT pg_sleep(60)"); err == nil {
			t.Error("the context has not ended")
		}
		if err := hold.Err(); !errors.Is(err, tier.ErrLost) {
			t.Errorf("the connection is being closed while the hold says %v", err)
		}
		return nil
	})
	if !errors.Is(err, tier.ErrLost) || errors.Is(err, tier.ErrUnknown) {
		t.Errorf("Tx: %v, want ErrLost", err)
	}
}

// The server ends the session only once the lease is over, so it could still commit.
func TestAdvisoryTransactionEndsWithTheLease(t *testing.T) {
	t.Parallel()
	_, hold := holdAdvisory(t)
	table := table(t)
	err := Tx(soon(t), hold, func(tx pgx.Tx) error {
		if err := increment(t.Context(), table)(tx); err != nil {
			return err
		}
		<-hold.Lost()
		return nil
	})
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
	if !errors.Is(err, tier.ErrLost) {
		t.Errorf("Tx: %v, want ErrLost", err)
	}
	mustRelease(t, startAdvisory(t, pgserver.PlainURL(server(t).Addr())).mustAcquire(t, lockPath(t)))
	if took := time.Since(begun); took > 30*time.Second {
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
	_, hold := holdTapped(t)
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
