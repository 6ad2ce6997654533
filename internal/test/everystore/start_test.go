//go:build unix

package everystore

import (
	"context"
	"database/sql"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/tierlock/tierlock/etcdlock"
	"github.com/tierlock/tierlock/internal/test/mysqlserver"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/pgserver"
	"github.com/tierlock/tierlock/mysqllock"
	"github.com/tierlock/tierlock/pglock"
	"github.com/tierlock/tierlock/redislock"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
)

// Each of the constructors returns the registry of a process. The registry uses a client that ends with the test. If lazy is true, the
// constructor does not wait for a session.
var constructors = map[string]func(ctx context.Context, t *testing.T, addr string, lazy bool) (*tier.Registry, error){
	"etcd": func(ctx context.Context, t *testing.T, addr string, lazy bool) (*tier.Registry, error) {
		client := need.Get(clientv3.New(clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop()}))(t)
		t.Cleanup(func() { client.Close() })
		return etcdlock.New(ctx, client, only(lazy, tier.WithLazyStart())...)
	},
	"Redis": func(ctx context.Context, t *testing.T, addr string, lazy bool) (*tier.Registry, error) {
		client := redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { client.Close() })
		return redislock.New(ctx, client, only(lazy, tier.WithLazyStart())...)
	},
	"ZooKeeper": func(ctx context.Context, t *testing.T, addr string, lazy bool) (*tier.Registry, error) {
		return zklock.Dial(ctx, addr, only(lazy, tier.WithLazyStart())...)
	},
	"MySQL": func(ctx context.Context, t *testing.T, addr string, lazy bool) (*tier.Registry, error) {
		db := need.Get(sql.Open("mysql", mysqlserver.DSN(addr)))(t)
		t.Cleanup(func() { db.Close() })
		return mysqllock.New(ctx, db, only(lazy, tier.WithLazyStart())...)
	},
	"PostgreSQL":           onPostgres(pglock.New),
	"PostgreSQL, advisory": onPostgres(pglock.NewAdvisory),
}

func onPostgres(create func(context.Context, *pgxpool.Pool, ...tier.RegistryOption) (*tier.Registry, error),
) func(context.Context, *testing.T, string, bool) (*tier.Registry, error) {
	return func(ctx context.Context, t *testing.T, addr string, lazy bool) (*tier.Registry, error) {
		pool := need.Get(pgxpool.New(t.Context(), pgserver.PlainURL(addr)))(t)
		t.Cleanup(pool.Close)
		return create(ctx, pool, only(lazy, tier.WithLazyStart())...)
	}
}

func only[O any](given bool, option O) []O {
	if given {
		return []O{option}
	}
	return nil
}

// nobodyAt returns an address at which no server listens.
func nobodyAt(t *testing.T) string {
	l := need.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	return l.Addr().String()
}

func TestConstructorsSayWhyThereIsNoSession(t *testing.T) {
	for name, create := range constructors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr := nobodyAt(t)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			locks, err := create(ctx, t, addr, false)
			need.That(t, "there are locks", locks == nil)
			need.WantErr(t, "the error", err, context.DeadlineExceeded)
			need.WantErr(t, "the error", err, tier.ErrUnavailable)
			need.WantMention(t, err, addr)
		})
	}
}

func TestALazyStartWaitsForNobody(t *testing.T) {
	for name, create := range constructors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr := nobodyAt(t)
			ctx, cancel := context.WithCancel(t.Context())
			cancel() // would end every wait of the constructor
			locks := need.Get(create(ctx, t, addr, true))(t)
			defer locks.Close()
			wait, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := locks.Mutex("/x").Acquire(wait)
			need.WantErr(t, "an acquisition", err, context.DeadlineExceeded)
			need.WantMention(t, err, addr)
			need.WantMention(t, locks.Err(), addr)
			_, err = locks.Mutex("/y").TryAcquire(t.Context())
			need.WantErr(t, "a try", err, tier.ErrUnavailable)
		})
	}
}
