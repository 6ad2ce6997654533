package verdict

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	bsm "github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/go-zookeeper/zk"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/tierlock/tierlock/internal/test/pgserver"
	"github.com/tierlock/tierlock/stress/internal/store"
)

// Package store has the same locks for benchmarks. There they have no leases, and are not checked for a loss.

// Peer is the connection of one process for the lock of another library.
type Peer struct {
	Contend func(ctx context.Context, path string) (store.Hold, error)
	End     func()
}

// Contender returns the function with which the process acquires the lock at path.
func (p Peer) Contender(path string) (store.Contender, error) {
	return func(ctx context.Context, _ int64) (store.Hold, error) { return p.Contend(ctx, path) }, nil
}

// Close ends the connection.
func (p Peer) Close() error {
	p.End()
	return nil
}

// Held is a hold of a peer's lock. Its owner believes in it until Gone returns true. Gone uses what the library shows.
type Held struct {
	Gone func() bool
	Free func() error
}

// Token returns 0, because these holds have no tokens. [store.Hold] requires the method.
func (Held) Token() int64 { return 0 }

// Lost returns nil, because these holds do not signal a loss. [store.Hold] requires the method.
func (Held) Lost() <-chan struct{} { return nil }

// Release releases the lock.
func (h Held) Release() error { return h.Free() }

// Err returns [store.ErrLost] if the lock is lost.
func (h Held) Err() error {
	if h.Gone() {
		return store.ErrLost
	}
	return nil
}

// isDone reports whether a channel is closed.
func isDone(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// The function renewing calls renew every third of the lease. It ends when renew returns false or when stop is called.
func renewing(renew func(ctx context.Context) bool) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(lease / 3)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			attempt, done := context.WithTimeout(ctx, lease/3)
			again := renew(attempt)
			done()
			if !again {
				return
			}
		}
	}()
	return func() { cancel(); <-ended }
}

// The function bounded calls do with a time limit. It is for what a program does at the end of its section.
func bounded(do func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), lease)
	defer cancel()
	return do(ctx)
}

// dialZK uses zk.Lock. Only the connection shows that a lock may be lost. A careful owner therefore gives its lock up when the
// connection ends.
func dialZK(_ context.Context, o store.Options) (store.Locker, error) {
	conn, events, err := zk.Connect(o.Servers, o.SessionTimeout, zk.WithLogInfo(false))
	if err != nil {
		return nil, err
	}
	var breaks atomic.Int64
	go func() {
		for e := range events {
			if e.State == zk.StateDisconnected || e.State == zk.StateExpired {
				breaks.Add(1)
			}
		}
	}()
	contend := func(_ context.Context, path string) (store.Hold, error) {
		lock := zk.NewLock(conn, path, zk.WorldACL(zk.PermAll))
		before := breaks.Load()
		if err := lock.Lock(); err != nil {
			return nil, err
		}
		return Held{func() bool { return breaks.Load() != before || conn.State() != zk.StateHasSession }, lock.Unlock}, nil
	}
	return Peer{contend, conn.Close}, nil
}

func connectEtcd(o store.Options) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: o.Servers, Logger: zap.NewNop(), DialKeepAliveTime: o.SessionTimeout / 2, DialKeepAliveTimeout: o.SessionTimeout / 2,
	})
}

// dialEtcd uses concurrency.Mutex. Each process has one session. When that session has ended, it opens another one.
func dialEtcd(_ context.Context, o store.Options) (store.Locker, error) {
	client, err := connectEtcd(o)
	if err != nil {
		return nil, err
	}
	var session *concurrency.Session
	contend := func(ctx context.Context, path string) (store.Hold, error) {
		if session == nil || isDone(session.Done()) {
			var err error
			if session, err = concurrency.NewSession(client, concurrency.WithTTL(int(o.SessionTimeout/time.Second))); err != nil {
				return nil, err
			}
		}
		own := session
		mutex := concurrency.NewMutex(own, path)
		if err := mutex.Lock(ctx); err != nil {
			return nil, err
		}
		return Held{func() bool { return isDone(own.Done()) }, func() error { return bounded(mutex.Unlock) }}, nil
	}
	return Peer{contend, func() { client.Close() }}, nil
}

// dialRedsync renews the lock with Extend. The owner believes in the lock until the time that Until returns.
func dialRedsync(_ context.Context, o store.Options) (store.Locker, error) {
	client := redis.NewClient(&redis.Options{Addr: o.Servers[0]})
	locks := redsync.New(goredis.NewPool(client))
	contend := func(ctx context.Context, path string) (store.Hold, error) {
		mutex := locks.NewMutex(path, redsync.WithExpiry(o.SessionTimeout))
		if err := mutex.LockContext(ctx); err != nil {
			return nil, err
		}
		var until atomic.Pointer[time.Time]
		learn := func() { t := mutex.Until(); until.Store(&t) }
		learn()
		stop := renewing(func(ctx context.Context) bool {
			_, err := mutex.ExtendContext(ctx)
			if taken := new(redsync.ErrTaken); errors.As(err, &taken) {
				until.Store(&time.Time{})
				return false
			}
			learn()
			return true
		})
		return Held{func() bool { return !time.Now().Before(*until.Load()) }, func() error {
			stop()
			return bounded(func(ctx context.Context) error { _, err := mutex.UnlockContext(ctx); return err })
		}}, nil
	}
	return Peer{contend, func() { client.Close() }}, nil
}

// dialBsm renews the lock with Refresh. The owner believes in the lock until a Refresh fails. An acquisition is tried again every 100
// ms.
func dialBsm(_ context.Context, o store.Options) (store.Locker, error) {
	client := redis.NewClient(&redis.Options{Addr: o.Servers[0]})
	locks := bsm.New(client)
	contend := func(ctx context.Context, path string) (store.Hold, error) {
		lock, err := locks.Obtain(ctx, path, o.SessionTimeout, &bsm.Options{RetryStrategy: bsm.LinearBackoff(100 * time.Millisecond)})
		if err != nil {
			return nil, err
		}
		var failed atomic.Bool
		stop := renewing(func(ctx context.Context) bool {
			failed.Store(lock.Refresh(ctx, o.SessionTimeout, nil) != nil)
			return !failed.Load()
		})
		return Held{failed.Load, func() error { stop(); return bounded(lock.Release) }}, nil
	}
	return Peer{contend, func() { client.Close() }}, nil
}

// dialRueidislock uses one server, as in the README of rueidislock. By default rueidislock waits 20 ms for an answer, which is too short
// on a busy machine: after that it would wait for a notification that never comes.
func dialRueidislock(_ context.Context, o store.Options) (store.Locker, error) {
	locks, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: o.Servers},
		KeyMajority:  1, NoLoopTracking: true, KeyValidity: o.SessionTimeout, TryNextAfter: o.SessionTimeout / 10,
	})
	if err != nil {
		return nil, err
	}
	contend := func(ctx context.Context, path string) (store.Hold, error) {
		own, release, err := locks.WithContext(ctx, path)
		if err != nil {
			return nil, err
		}
		return Held{func() bool { return own.Err() != nil }, func() error { release(); return nil }}, nil
	}
	return Peer{contend, locks.Close}, nil
}

// dialAdvisory uses pg_advisory_lock. The server ends a session that is idle for as long as a lease. To keep its session, a process
// pings the server three times in a lease.
func dialAdvisory(ctx context.Context, o store.Options) (store.Locker, error) {
	cfg, err := pgxpool.ParseConfig(pgserver.URL(o.Servers...))
	if err != nil {
		return nil, err
	}
	cfg.ConnConfig.RuntimeParams["idle_session_timeout"] = o.SessionTimeout.String()
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	contend := func(ctx context.Context, path string) (store.Hold, error) {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock(hashtextextended($1, 0))", path); err != nil {
			conn.Release()
			return nil, err
		}
		var failed atomic.Bool
		stop := renewing(func(ctx context.Context) bool {
			failed.Store(conn.Ping(ctx) != nil)
			return !failed.Load()
		})
		return Held{failed.Load, func() error {
			stop()
			defer conn.Release()
			return bounded(func(ctx context.Context) error {
				_, err := conn.Exec(ctx, "SELECT pg_advisory_unlock(hashtextextended($1, 0))", path)
				return err
			})
		}}, nil
	}
	return Peer{contend, pool.Close}, nil
}
