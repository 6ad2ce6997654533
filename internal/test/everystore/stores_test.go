//go:build unix

package everystore

import (
	"context"
	"database/sql"
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/tierlock/tierlock/etcdlock"
	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/etcdserver"
	"github.com/tierlock/tierlock/internal/test/mysqlserver"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/pgserver"
	"github.com/tierlock/tierlock/internal/test/redisserver"
	"github.com/tierlock/tierlock/internal/test/zkserver"
	"github.com/tierlock/tierlock/mysqllock"
	"github.com/tierlock/tierlock/pglock"
	"github.com/tierlock/tierlock/redislock"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
)

func TestMain(m *testing.M) {
	flag.Parse()
	flag.Set("test.parallel", "32") // tests spend most of their time waiting for leases to end
	goleak.VerifyTestMain(m)
}

// session is the time for which a store keeps the contenders of a silent process.
const session = 8 * time.Second

// patience is how long a test waits for an event that has to happen, even on a busy machine.
const patience = 5 * time.Minute

// A connect is a function that connects another process to a server, and returns the locks of that process.
type connect func(t testing.TB, addr string) (*tier.Registry, error)

// A store says how to start a server, and how to connect to it.
type store struct {
	name    string
	start   func(t *testing.T) (addr string)
	connect connect
	deface  deface
}

var stores = []store{
	{"ZooKeeper", startZooKeeper, zooKeeper, defaceZooKeeper},
	{"etcd", startEtcd, etcd, defaceEtcd},
	{"Redis", startRedis, redisServer, defaceRedis},
	{"MySQL", startMySQL, mySQL, defaceMySQL},
	{"PostgreSQL", startPostgres, postgres(pglock.New), defacePostgres},
	{"PostgreSQL, advisory", startPostgres, postgres(pglock.NewAdvisory), nil},
}

func startZooKeeper(t *testing.T) string {
	return childtest.Start(t, zkserver.Start, zkserver.Config{NoSync: true}).Addr()
}

func zooKeeper(t testing.TB, addr string) (*tier.Registry, error) {
	return zklock.Dial(t.Context(), addr, tier.WithLeaseTTL(session))
}

func startEtcd(t *testing.T) string {
	return childtest.Start(t, etcdserver.Start, etcdserver.Config{NoSync: true}).Addr()
}

func etcd(t testing.TB, addr string) (*tier.Registry, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { client.Close() })
	return etcdlock.New(t.Context(), client, tier.WithLeaseTTL(session))
}

func startMySQL(t *testing.T) string {
	addr := childtest.Start(t, mysqlserver.Start, mysqlserver.Config{NoSync: true}).Addr()
	operator := need.Get(sql.Open("mysql", mysqlserver.DSN(addr)))(t)
	defer operator.Close()
	need.OK(t, mysqllock.Migrate(t.Context(), operator))
	return addr
}

func mySQL(t testing.TB, addr string) (*tier.Registry, error) {
	db, err := sql.Open("mysql", mysqlserver.DSN(addr))
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { db.Close() })
	return mysqllock.New(t.Context(), db, tier.WithLeaseTTL(session))
}

func startPostgres(t *testing.T) string {
	addr := childtest.Start(t, pgserver.Start, pgserver.Config{NoSync: true}).Addr()
	operator, err := pool(t, addr)
	if err == nil {
		err = pglock.Migrate(t.Context(), operator)
	}
	need.OK(t, err)
	return addr
}

func pool(t testing.TB, addr string) (*pgxpool.Pool, error) {
	pool, err := pgxpool.New(t.Context(), pgserver.PlainURL(addr))
	if err == nil {
		t.Cleanup(pool.Close)
	}
	return pool, err
}

func postgres(open func(context.Context, *pgxpool.Pool, ...tier.RegistryOption) (*tier.Registry, error)) connect {
	return func(t testing.TB, addr string) (*tier.Registry, error) {
		own, err := pool(t, addr)
		if err != nil {
			return nil, err
		}
		return open(t.Context(), own, tier.WithLeaseTTL(session))
	}
}

func startRedis(t *testing.T) string {
	addr := childtest.Start(t, redisserver.Start, redisserver.Config{NoSync: true}).Addr()
	first, err := redisAt(t, addr, redislock.WithNewServer())
	if err == nil {
		defer first.Close()
		err = first.Mutex("first").Do(t.Context(), func(context.Context) error { return nil })
	}
	need.OK(t, err)
	return addr
}

func redisAt(t testing.TB, addr string, opts ...tier.RegistryOption) (*tier.Registry, error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { client.Close() })
	return redislock.New(t.Context(), client, append(opts, tier.WithLeaseTTL(session))...)
}

func redisServer(t testing.TB, addr string) (*tier.Registry, error) { return redisAt(t, addr) }

// A site is a server, and how to connect to it.
type site struct {
	addr    string
	connect connect
}

// The method process returns the locks of one more process.
func (s site) process(t *testing.T) *tier.Registry {
	t.Helper()
	locks := need.Get(s.connect(t, s.addr))(t)
	t.Cleanup(func() { locks.Close() })
	return locks
}

// pathOf returns the path of the test's lock.
func pathOf(t *testing.T) string {
	return "/" + strings.Map(func(r rune) rune {
		if r == '/' || r == ' ' {
			return '-'
		}
		return r
	}, t.Name())
}

// The function soon returns a context that limits a wait of a test.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}
