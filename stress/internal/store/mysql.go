package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/tierlock/tierlock/internal/test/child"
	"github.com/tierlock/tierlock/internal/test/mysqlserver"
	"github.com/tierlock/tierlock/mysqllock"
	"github.com/tierlock/tierlock/stress/internal/clock"
	"github.com/tierlock/tierlock/tier"
)

// MySQL is the store of package mysqllock, with a single MariaDB server.
var MySQL = &Store{
	Name:  "mysql",
	Title: "MariaDB",
	Locks: locksOf(openMySQL, []Sort{Mutex, ReadersWriter, Semaphore}, map[string]Dial{
		"get_lock": onDB(contendGetLock), "get_lock-local": local(onDB(contendGetLock)), "table": onDB(contendTable),
	}),
	Baselines:    []string{"get_lock", "get_lock-local", "table"},
	Start:        startMySQL,
	URL:          func(servers []string) string { return mysqlserver.URL(servers[0]) },
	Observe:      observeMySQL,
	HastyTimeout: hastyTimeout,
	GracePeriod:  true,
	Guarded:      guardedOnMySQL,
}

const noMySQL = none("MariaDB")

// writes is the name of a counter of InnoDB: the committed transactions that have written.
const writes = "trx_rw_commits"

func startMySQL(ctx context.Context, shape Shape) (*Cluster, error) {
	if shape.Members > 1 {
		return nil, errors.New("there is one MariaDB server here, and no ensemble")
	}
	server, err := mysqlserver.Start(ctx, mysqlserver.Config{NoSync: shape.Hasty, Settings: []string{"--innodb-monitor-enable=" + writes}})
	if err != nil {
		return nil, errors.Join(noMySQL, err)
	}
	db, err := connectMySQL(mysqlserver.DSN(server.Addr()))
	if err == nil {
		err = mysqllock.Migrate(ctx, db)
		db.Close()
	}
	if err != nil {
		return nil, errors.Join(noMySQL, err, server.Stop())
	}
	return &Cluster{Ensemble: &child.Ensemble{Members: []*child.Server{server}}}, nil
}

// connectMySQL returns a pool without waiting for a connection. The pool keeps idle connections, as programs with many goroutines
// configure it.
func connectMySQL(dsn string) (*sql.DB, error) {
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, err
	}
	config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return countedConn{conn}, err
	}
	config.InterpolateParams = true // so that a statement takes one round trip
	config.Logger = silent{}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxIdleConns(200)
	return db, nil
}

// silent is a logger that drops everything, because the faults of a test are intended.
type silent struct{}

func (silent) Print(...any) {}

func openMySQL(ctx context.Context, o Options) (*tier.Registry, func() error, error) {
	db, err := connectMySQL(mysqlserver.DSN(o.Servers[0]))
	if err != nil {
		return nil, nil, err
	}
	locks, err := mysqllock.New(ctx, db, o.registry()...)
	return opened(locks, err, db.Close)
}

// onDB dials locks for which each goroutine may use its own connection of a pool.
func onDB(contender func(db *sql.DB, path string) Contender) Dial {
	return func(_ context.Context, o Options) (Locker, error) {
		db, err := connectMySQL(mysqlserver.DSN(o.Servers[0]))
		if err != nil {
			return nil, err
		}
		return peer{func(path string) Contender { return contender(db, path) }, db.Close}, nil
	}
}

// contendGetLock locks with GET_LOCK. Each goroutine does so on a connection of the pool and keeps the connection until it unlocks. The
// name of such a lock has at most 64 characters.
func contendGetLock(db *sql.DB, path string) Contender {
	name := path[max(0, len(path)-64):]
	return func(ctx context.Context, _ int64) (Hold, error) {
		conn, err := db.Conn(ctx)
		if err != nil {
			return nil, err
		}
		var got sql.NullInt64
		if err := conn.QueryRowContext(ctx, "SELECT GET_LOCK(?, 3600)", name).Scan(&got); err != nil || got.Int64 != 1 {
			return nil, errors.Join(err, conn.Close())
		}
		return plain(func() error {
			defer conn.Close()
			_, err := conn.ExecContext(context.Background(), "DO RELEASE_LOCK(?)", name)
			return err
		}), nil
	}
}

// The table lock works like the JDBC lock registry of Spring. A process gets the lock when it inserts the row, or replaces a row that has
// expired. A process that finds the lock taken tries again after 100 ms, which is Spring's default.
const (
	tableIdle  = 100 * time.Millisecond
	tableLease = 10 * time.Second
)

func contendTable(db *sql.DB, path string) Contender {
	return func(ctx context.Context, _ int64) (Hold, error) {
		me := rand.Int64()
		for {
			// ctx does not end the statement, because the effect of a cancelled statement would be unknown.
			result, err := db.Exec(`INSERT INTO stress_lock VALUES (?, ?, UTC_TIMESTAMP(6) + INTERVAL ? SECOND) ON DUPLICATE KEY UPDATE
				owner = IF(expires < UTC_TIMESTAMP(6), VALUES(owner), owner), expires = IF(owner = VALUES(owner), VALUES(expires), expires)`,
				path, me, int(tableLease.Seconds()))
			if err != nil && !again(err) {
				return nil, err
			}
			if err == nil {
				if n, _ := result.RowsAffected(); n > 0 {
					return plain(func() error {
						_, err := db.Exec("DELETE FROM stress_lock WHERE path = ? AND owner = ?", path, me)
						return err
					}), nil
				}
			}
			clock.Sleep(tableIdle, ctx.Done())
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
		}
	}
}

// The function again reports whether the server has rolled the statement back because of other sessions: for a deadlock, or after
// waiting too long for a row lock.
func again(err error) bool {
	refusal, ok := errors.AsType[*mysql.MySQLError](err)
	return ok && (refusal.Number == 1213 || refusal.Number == 1205)
}

func guardedOnMySQL(ctx context.Context, hold tier.Guard, path string, token int64, work func()) (late int64, err error) {
	err = mysqllock.Tx(ctx, hold, func(tx *sql.Tx) error {
		earlier := func() (n int64, err error) {
			return n, tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM stress_guarded WHERE path = ? AND token < ?", path, token).Scan(&n)
		}
		before, err := earlier()
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO stress_guarded (path, token) VALUES (?, ?)", path, token); err != nil {
			return err
		}
		work()
		after, err := earlier()
		late = after - before
		return err
	})
	return late, err
}

// mySQLObserver has its own connection pool, of a user that may read counters.
type mySQLObserver struct {
	site
	db *sql.DB
}

func observeMySQL(ctx context.Context, place Place) (Observer, error) {
	o := &mySQLObserver{site: place.site()}
	var err error
	if o.db, err = connectMySQL(mysqlserver.RootDSN(o.servers[0])); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	for _, table := range []string{
		"stress_lock (path VARBINARY(1024) PRIMARY KEY, owner BIGINT NOT NULL, expires DATETIME(6) NOT NULL)",
		"stress_guarded (id BIGINT AUTO_INCREMENT PRIMARY KEY, path VARBINARY(1024) NOT NULL, token BIGINT NOT NULL, KEY (path, token))",
	} {
		if _, err := o.db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS "+table+" ENGINE = InnoDB"); err != nil {
			o.db.Close()
			return nil, fmt.Errorf("%w: %w", noMySQL, err)
		}
	}
	return o, nil
}

// Renew does nothing, because the pool makes new connections by itself.
func (o *mySQLObserver) Renew(context.Context) error { return nil }

// Orphans counts what is left at the lock paths: contenders (also those for permits), locks that any session has, and rows of the lock
// table.
func (o *mySQLObserver) Orphans() (n int64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), reachTimeout)
	defer cancel()
	for _, path := range o.paths {
		var here int64
		if err := o.db.QueryRowContext(ctx, `SELECT (SELECT COUNT(*) FROM tierlock_contender WHERE path IN (?, ?))
			+ (SELECT COUNT(*) FROM stress_lock WHERE path = ?) + (IS_USED_LOCK(?) IS NOT NULL)`,
			path, path+"\npermits", path, path[max(0, len(path)-64):]).Scan(&here); err != nil {
			return 0, fmt.Errorf("look for leftovers: %w", err)
		}
		n += here
	}
	return n, nil
}

func (o *mySQLObserver) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), reachTimeout)
	defer cancel()
	for _, path := range o.paths {
		_, _ = o.db.ExecContext(ctx, "DELETE FROM stress_lock WHERE path = ?", path)
		_, _ = o.db.ExecContext(ctx, "DELETE FROM stress_guarded WHERE path = ?", path)
	}
	o.db.Close()
}

// Traffic does not count packets. Its writes are the committed transactions that have written something, renewals included.
func (o *mySQLObserver) Traffic() (t Traffic, ok bool) {
	ctx, cancel := context.WithTimeout(context.Background(), reachTimeout)
	defer cancel()
	err := o.db.QueryRowContext(ctx, "SELECT COUNT FROM information_schema.INNODB_METRICS WHERE NAME = ?", writes).Scan(&t.Writes)
	return t, err == nil
}
