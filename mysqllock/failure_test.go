package mysqllock

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/mysqlserver"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/waittest"
	"github.com/tierlock/tierlock/tier"
)

var eventually = waittest.Eventually

func (p *process) at(t *testing.T, path string) waittest.Lock {
	return waittest.At(t, p.Tier, path, second.Options{})
}

// connected returns a connection with the settings that the locks use, to a server with the tables.
func connected(t *testing.T, addr string) *conn {
	t.Helper()
	c := need.Get(connect(soon(t), poolAt(t, mysqlserver.DSN(addr)), ttl))(t)
	t.Cleanup(c.discard)
	return c
}

const nowSQL = "UNIX_TIMESTAMP(SYSDATE(6)) * 1000000"

// beatOf renews a session that belongs to no process. The result stale has the IDs of contenders whose session has expired.
func beatOf(t *testing.T, c *conn, session string, ttl time.Duration) (alive bool, quiet int64, stale string) {
	t.Helper()
	need.OK(t, c.row(soon(t), "CALL tierlock_beat(?, ?)", []any{session, ttl.Milliseconds()}, &alive, &quiet, &stale))
	return alive, quiet, stale
}

// sessionOf begins a session that belongs to no process.
func sessionOf(t *testing.T, c *conn, ttl time.Duration) string {
	t.Helper()
	id := rand.Text()
	need.OK(t, c.exec(soon(t), "CALL tierlock_open(?, ?, 'host', 1, '')", id, ttl.Milliseconds()))
	return id
}

// enterOf adds a contender to a queue, and returns its ID and its token.
func enterOf(t *testing.T, c *conn, path, session string) (id string, token int64) {
	t.Helper()
	var alive, first, removed bool
	var quiet int64
	var others sql.NullInt64
	id = rand.Text()
	args := []any{path, id, session, false, 0, "", false, 0, 0}
	need.OK(t, c.row(soon(t), enterSQL, args, &alive, &token, &first, &removed, &quiet, &others))
	need.Must(t, "the session is over", alive)
	return id, token
}

// A renewal counts if the server has begun it in time, even if its commit takes long. Until that commit, no process removes the contenders
// of the session.
func TestSessionWithARenewalUnderWayIsNotOver(t *testing.T) {
	t.Parallel()
	s, root := alone(t)
	need.OK(t, Migrate(soon(t), poolAt(t, mysqlserver.DSN(s.Addr()))))
	c, other := connected(t, s.Addr()), connected(t, s.Addr())
	mine, theirs := sessionOf(t, c, time.Minute), sessionOf(t, c, time.Minute)
	id, _ := enterOf(t, c, "/x", mine)
	renewal := need.Get(root.BeginTx(soon(t), nil))(t)
	defer renewal.Rollback()
	run(t, root, "UPDATE tierlock_session SET expires = "+nowSQL+" - 1 WHERE id = '"+mine+"'")
	need.Get(renewal.Exec("SELECT id FROM tierlock_session WHERE id = ? FOR UPDATE", mine))(t)
	_, _, stale := beatOf(t, other, theirs, time.Minute)
	need.Equal(t, "over while a renewal is under way", stale, "")
	need.OK(t, renewal.Rollback())
	_, _, stale = beatOf(t, other, theirs, time.Minute)
	need.Equal(t, "over", stale, id)
	alive, _, _ := beatOf(t, c, mine, time.Minute)
	need.That(t, "a session that was over is renewed", !alive)
}

// After a start of the server, tokens continue far above those in its data, because the newest data may be lost.
func TestTokensGoOnAboveThoseThatMayBeLost(t *testing.T) {
	t.Parallel()
	s, root := alone(t)
	need.OK(t, Migrate(soon(t), poolAt(t, mysqlserver.DSN(s.Addr()))))
	c := connected(t, s.Addr())
	session := sessionOf(t, c, time.Minute)
	_, before := enterOf(t, c, "/x", session)
	run(t, root, "UPDATE tierlock_state SET life = 'another'")
	_, token := enterOf(t, c, "/x", session)
	need.AtLeast(t, "token", token, before+1_000_000)
	_, quiet, _ := beatOf(t, c, session, time.Minute)
	need.Between(t, "grace period in ms", quiet, 30_000, 60_001)
}

// The clock was ahead when the server was started, and is then set right. The grace period must not become longer.
func TestClockThatIsSetBackEndsTheGracePeriodInTime(t *testing.T) {
	t.Parallel()
	s, root := alone(t)
	need.OK(t, Migrate(soon(t), poolAt(t, mysqlserver.DSN(s.Addr()))))
	c := connected(t, s.Addr())
	session := sessionOf(t, c, time.Second)
	run(t, root, "UPDATE tierlock_state SET since = "+nowSQL+" + 3600000000")
	_, quiet, _ := beatOf(t, c, session, time.Second)
	need.Between(t, "grace period in ms", quiet, 1, 1001)
	eventually(t, "its end", func() bool {
		_, quiet, _ := beatOf(t, c, session, time.Second)
		return quiet == 0
	})
}

// When a server is restarted, or started with the data of another server, holders keep their locks. Other processes get no lock for the
// time of a lease.
func TestServerThatIsStartedGrantsNothingForALease(t *testing.T) {
	t.Parallel()
	for name, restart := range map[string]func(*mysqlserver.Server) error{
		"in good order": func(s *mysqlserver.Server) error { return s.Restart(t.Context()) },
		"killed": func(s *mysqlserver.Server) error {
			s.Kill()
			return s.Restart(t.Context())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, root := alone(t)
			need.OK(t, Migrate(soon(t), poolAt(t, mysqlserver.DSN(s.Addr()))))
			awaitSecond(t, root)
			lease := 10 * time.Second
			if mysqlserver.IsMySQL() { // a restart of MySQL takes longer
				lease = 30 * time.Second
			}
			p := begin(t, s.Addr(), lease)
			held := waittest.Acquire(t, p.at(t, "/held"))
			need.OK(t, restart(s))
			begun := time.Now()
			next := begin(t, s.Addr(), lease)
			_, err := next.at(t, "/free").TryAcquire(soon(t))
			need.That(t, fmt.Sprint("a try says ", err), errors.As(err, new(*second.GracePeriodError)))
			g := waittest.Acquire(t, next.at(t, "/free"))
			need.AtLeast(t, "until a lock was granted", time.Since(begun), lease-2*time.Second) // the server was started before begun
			need.OK(t, held.Err())
			waittest.Release(t, held)
			waittest.Release(t, g)
		})
	}
}

// awaitSecond waits until the clock shows another second than at the start of the server. A start is identified by its second.
func awaitSecond(t *testing.T, root *sql.DB) {
	t.Helper()
	eventually(t, "a server that was not started in this second", func() bool {
		var name string
		var uptime int
		return root.QueryRowContext(soon(t), "SHOW GLOBAL STATUS LIKE 'Uptime'").Scan(&name, &uptime) == nil && uptime > 1
	})
}

// The server is set back to data without the holder's row. No other process gets the lock before the holder has learned of its loss.
func TestServerWithOlderDataGrantsNoLockTwice(t *testing.T) {
	t.Parallel()
	s, _ := alone(t)
	need.OK(t, Migrate(soon(t), poolAt(t, mysqlserver.DSN(s.Addr()))))
	const lease = 6 * time.Second
	first := begin(t, s.Addr(), lease)
	waittest.Release(t, waittest.Acquire(t, first.at(t, "/x")))
	first.Close()
	data, older := filepath.Join(s.Dir(), "data"), filepath.Join(t.TempDir(), "older")
	s.Kill()
	need.OK(t, os.CopyFS(older, os.DirFS(data)))
	need.OK(t, s.Restart(t.Context()))
	holder := begin(t, s.Addr(), lease)
	held := waittest.Acquire(t, holder.at(t, "/x"))
	s.Kill()
	need.OK(t, os.RemoveAll(data))
	need.OK(t, os.CopyFS(data, os.DirFS(older)))
	need.OK(t, s.Restart(t.Context()))
	next := waittest.Acquire(t, begin(t, s.Addr(), lease).at(t, "/x"))
	wantErr(t, held.Err(), tier.ErrLost)
	need.AtLeast(t, "token", next.Token(), held.Token()+1)
	waittest.Release(t, next)
}

// A transaction of the program and a release may wait for each other. The server then rolls the release back (error 1213), and the release
// is sent again.
func TestDeadlockIsRepeated(t *testing.T) {
	t.Parallel()
	s, root := alone(t)
	need.OK(t, Migrate(soon(t), poolAt(t, mysqlserver.DSN(s.Addr()))))
	run(t, root, "CREATE TABLE heavy ENGINE = InnoDB SELECT bucket FROM tierlock_bucket")
	held := waittest.Acquire(t, begin(t, s.Addr(), unhurried).at(t, "/x"))
	tx := need.Get(root.BeginTx(t.Context(), nil))(t)
	defer tx.Rollback()
	need.Get(tx.Exec("UPDATE heavy SET bucket = -bucket"))(t) // makes the release the smaller transaction, which the server rolls back
	need.Get(tx.Exec("SELECT id FROM tierlock_contender WHERE path = '/x' FOR UPDATE"))(t)
	released := make(chan error, 1)
	go func() { released <- held.Release() }()
	eventually(t, "a release that waits", func() bool {
		time.Sleep(200 * time.Millisecond) // within 0.1 s of a query of this table, InnoDB answers the next one from its cache
		return ask[int](t, root, "SELECT COUNT(*) FROM information_schema.INNODB_TRX WHERE trx_state = 'LOCK WAIT'") > 0
	})
	need.Get(tx.ExecContext(soon(t), "UPDATE tierlock_bucket SET newest = newest WHERE bucket = CRC32('/x') & 4095"))(t)
	need.OK(t, tx.Rollback())
	need.OK(t, <-released)
	eventually(t, "an empty queue", func() bool { return ask[int](t, root, "SELECT COUNT(*) FROM tierlock_contender") == 0 })
}

// After a restart of the server, connections may get numbers that others had before. A process that wakes a listener must not end a
// statement of the program.
func TestNoStatementOfTheProgramIsEnded(t *testing.T) {
	t.Parallel()
	s, _ := alone(t)
	db := poolAt(t, mysqlserver.DSN(s.Addr()))
	need.OK(t, Migrate(soon(t), db))
	here, there := begin(t, s.Addr(), ttl), begin(t, s.Addr(), ttl)
	var turns atomic.Int64
	var work sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	for _, p := range []*process{here, there} {
		work.Go(func() {
			l := p.at(t, "/x")
			for ctx.Err() == nil {
				if g, err := l.Acquire(ctx); err == nil {
					g.Release()
					turns.Add(1)
				}
			}
		})
	}
	sleep := func() {
		var sleepers sync.WaitGroup
		defer sleepers.Wait()
		for range 20 { // with so many connections, one gets the number that a listener had before the restart
			sleepers.Go(func() {
				var end int
				if err := db.QueryRowContext(ctx, "SELECT SLEEP(1.5)").Scan(&end); ctx.Err() == nil && (err != nil || end != 0) {
					t.Errorf("a statement was ended: %d, %v", end, err)
				}
			})
		}
		now := turns.Load()
		eventually(t, "more turns", func() bool { return turns.Load() >= now+50 })
	}
	sleep()
	for range 2 {
		need.OK(t, s.Restart(t.Context()))
		eventually(t, "a connection", func() bool { return db.PingContext(t.Context()) == nil })
		sleep()
	}
	stop()
	work.Wait()
}

// An operator, a proxy or the server may end connections at any time. Locks and places in the queue are not lost.
func TestKilledConnectionsLoseNoLockAndNoTurn(t *testing.T) {
	t.Parallel()
	s, root := alone(t)
	need.OK(t, Migrate(soon(t), poolAt(t, mysqlserver.DSN(s.Addr()))))
	var inside, turns atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	var work sync.WaitGroup
	for range 3 {
		p := begin(t, s.Addr(), 10*time.Second)
		work.Go(func() {
			l := p.at(t, "/x")
			for ctx.Err() == nil {
				g, err := l.Acquire(ctx)
				if err != nil {
					continue
				}
				if inside.Add(1) != 1 {
					t.Error("two are inside")
				}
				time.Sleep(time.Millisecond)
				inside.Add(-1)
				if err := g.Release(); err != nil && ctx.Err() == nil && !errors.Is(err, tier.ErrUnavailable) {
					t.Error(err)
				}
				turns.Add(1)
			}
		})
	}
	for round := range 30 {
		kill := "KILL "
		if round%2 == 1 {
			kill = "KILL QUERY "
		}
		rows := need.Get(root.QueryContext(soon(t), "SELECT id FROM information_schema.PROCESSLIST WHERE user = 'plain'"))(t)
		var ids []string
		for rows.Next() {
			var id string
			need.OK(t, rows.Scan(&id))
			ids = append(ids, id)
		}
		need.OK(t, rows.Err())
		for _, id := range ids {
			root.ExecContext(soon(t), kill+id) // fails if the connection has ended already
		}
		now := turns.Load()
		eventually(t, "more turns", func() bool { return turns.Load() >= now+3 })
	}
	stop()
	work.Wait()
	eventually(t, "an empty queue", func() bool { return ask[int](t, root, "SELECT COUNT(*) FROM tierlock_contender") == 0 })
}

// A server that accepts no more connections still serves the present ones, and holders keep their locks.
func TestServerWithoutAConnectionToSpareKeepsLocks(t *testing.T) {
	t.Parallel()
	s, _ := alone(t, "--max-connections=10")
	need.OK(t, Migrate(soon(t), poolAt(t, mysqlserver.DSN(s.Addr()))))
	p := begin(t, s.Addr(), 2*ttl)
	held := waittest.Acquire(t, p.at(t, "/x"))
	var others []*sql.Conn
	eventually(t, "a server that is full", func() bool {
		c, err := poolAt(t, mysqlserver.DSN(s.Addr())).Conn(soon(t))
		if err != nil {
			return refusal(err) == 1040
		}
		others = append(others, c)
		return false
	})
	time.Sleep(3 * ttl)
	need.OK(t, held.Err())
	waittest.Release(t, held)
	for _, c := range others {
		c.Close()
	}
}

// A stuck transaction blocks a queue, but no renewals. Refusal reports it with the reason that the server gives.
func TestTransactionThatIsStuckInAQueueIsToldOf(t *testing.T) {
	t.Parallel()
	p := begin(t, shared.Get(t).server.Addr(), 12*time.Second) // long, so that the server gives up before the client
	waittest.RefusalTold(t, tier.New(p.Tier), func() (heal func()) {
		tx := need.Get(shared.Get(t).db.BeginTx(t.Context(), nil))(t)
		need.Get(tx.Exec("SELECT newest FROM tierlock_bucket WHERE bucket = CRC32(?) & 4095 FOR UPDATE", waittest.Path(t)))(t)
		return func() { tx.Rollback() }
	}, "Lock wait timeout")
}

// An asynchronous replica takes over. It lacks the newest rows. No other process gets a lock whose row is missing before its holder knows
// of the loss. A holder whose row is there keeps its lock.
func TestReplicaThatTakesOverGrantsNoLockTwice(t *testing.T) {
	t.Parallel()
	if mysqlserver.IsMySQL() {
		t.Skip("the statements for replication are those of MariaDB")
	}
	old, root := alone(t, "--server-id=1", "--log-bin", "--binlog-format=ROW")
	replica, promoted := alone(t, "--server-id=2", "--read-only")
	_, port, _ := net.SplitHostPort(old.Addr())
	run(t, promoted, "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = "+port+", MASTER_USER = 'root', MASTER_USE_GTID = slave_pos",
		"START SLAVE")
	var addr atomic.Pointer[string] // of the primary
	addr.Store(new(old.Addr()))
	const lease = 8 * time.Second
	open := func() *tier.Registry {
		config := need.Get(mysql.ParseDSN(mysqlserver.DSN("primary")))(t)
		config.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", *addr.Load())
		}
		db := sql.OpenDB(need.Get(mysql.NewConnector(config))(t))
		t.Cleanup(func() { db.Close() })
		need.OK(t, Migrate(soon(t), db))
		locks := need.Get(New(soon(t), db, tier.WithLeaseTTL(lease)))(t)
		t.Cleanup(func() { locks.Close() })
		return locks
	}
	holder := open()
	kept := need.Get(holder.Mutex("/kept").Acquire(soon(t)))(t)
	eventually(t, "a row in the replica", func() bool {
		var n int
		return promoted.QueryRow("SELECT COUNT(*) FROM tierlock_contender").Scan(&n) == nil && n == 1
	})
	run(t, promoted, "STOP SLAVE")
	lost := need.Get(holder.Mutex("/lost").Acquire(soon(t)))(t)
	root.Close()
	old.Kill()
	run(t, promoted, "RESET SLAVE ALL", "SET GLOBAL read_only = OFF")
	addr.Store(new(replica.Addr()))

	other := open()
	_, err := other.Mutex("/free").TryAcquire(soon(t))
	need.That(t, fmt.Sprint("a try says ", err), errors.As(err, new(*tier.GracePeriodError)))
	next := need.Get(other.Mutex("/lost").Acquire(soon(t)))(t)
	wantErr(t, lost.Err(), tier.ErrLost)
	need.AtLeast(t, "token", next.Token(), lost.Token()+1)
	need.OK(t, kept.Err())
	_, err = other.Mutex("/kept").TryAcquire(soon(t))
	wantErr(t, err, tier.ErrLocked)
	waittest.Release(t, next)
	waittest.Release(t, kept)
}
