package store

import (
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/etcdserver"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/oracle"
	"github.com/tierlock/tierlock/internal/test/pgserver"
	"github.com/tierlock/tierlock/internal/test/redisserver"
	"github.com/tierlock/tierlock/internal/test/zkserver"
	"github.com/tierlock/tierlock/tier"
)

func TestOnPostgres(t *testing.T) {
	server := childtest.Start(t, pgserver.Start, pgserver.Config{NoSync: true}).Addr()
	need.OK(t, migrate(t.Context(), []string{server}))
	testLocks(t, Postgres, server)
	testLocks(t, PostgresAdvisory, server)
	testTraffic(t, Postgres, "version", server, false)
}

func TestOnMySQL(t *testing.T) {
	cluster := need.Get(startMySQL(t.Context(), Shape{Members: 1, Hasty: true}))(t)
	defer cluster.Stop()
	testLocks(t, MySQL, cluster.Addrs()[0])
	testTraffic(t, MySQL, "table", cluster.Addrs()[0], false)
	testGuarded(t, cluster.Addrs()[0])
}

// testGuarded checks that a guarded write counts the writes of earlier holders that were committed during it, and no others.
func testGuarded(t *testing.T, server string) {
	t.Helper()
	o := need.Get(observeMySQL(t.Context(), Place{Servers: []string{server}, Lock: "mutex", Paths: 1}))(t).(*mySQLObserver)
	defer o.Close()
	path := o.Paths()[0]
	hold := need.Get(contender(t, MySQL, "mutex", server, path)(t.Context(), 1))(t)
	for late, tokens := range map[int64][]int64{0: {hold.Token(), hold.Token() + 1}, 1: {hold.Token() - 1}} {
		got := need.Get(guardedOnMySQL(t.Context(), hold.(tier.Guard), path, hold.Token(), func() {
			for _, token := range tokens {
				need.Get(o.db.ExecContext(t.Context(), "INSERT INTO stress_guarded (path, token) VALUES (?, ?)", path, token))(t)
			}
		}))(t)
		need.Equal(t, "late writes", got, late)
	}
	need.OK(t, hold.Release())
}

func TestOnRedis(t *testing.T) {
	server := childtest.Start(t, redisserver.Start, redisserver.Config{}).Addr()
	need.OK(t, trust(t.Context(), server))
	testLocks(t, Redis, server)
	testTraffic(t, Redis, "redislock", server, true)
}

func TestOnEtcd(t *testing.T) {
	server := childtest.Start(t, etcdserver.Start, etcdserver.Config{NoSync: true}).Addr()
	testLocks(t, Etcd, server)
	testTraffic(t, Etcd, "etcd", server, true)
}

func TestOnZooKeeper(t *testing.T) {
	testLocks(t, ZooKeeper, childtest.Start(t, zkserver.Start, zkserver.Config{}).Addr())
}

// testLocks checks each lock of a store: processes exclude one another, and an observer sees which process has the lock or a permit.
// Requests leave nothing behind, whether they succeed or are cancelled.
func testLocks(t *testing.T, s *Store, server string) {
	for lock, kind := range s.Locks {
		if lock == "zk" || lock == "zk-local" { // these two take no context
			continue
		}
		t.Run(s.Name+" "+lock, func(t *testing.T) {
			weight := map[Sort]int64{Mutex: 1, ReadersWriter: oracle.Everybody, Semaphore: 2}[kind.Sort]
			o := need.Get(s.Observe(t.Context(), Place{Servers: []string{server}, Lock: lock, Paths: 2}))(t)
			t.Cleanup(o.Close)
			first, second := contender(t, s, lock, server, o.Paths()[1]), contender(t, s, lock, server, o.Paths()[1])
			hold := need.Get(first(t.Context(), weight))(t)
			need.That(t, "two processes have the lock", need.ErrOf(second(need.Within(t, 300*time.Millisecond), weight)) != nil)
			need.AtLeast(t, "orphans while the lock is held", need.Get(o.Orphans())(t), 1)
			releases := func(hold Hold) {
				t.Helper()
				need.OK(t, hold.Release())
				need.Equal(t, "orphans after a release", need.Get(Leaked(t.Context(), o, 20*time.Second))(t), 0)
			}
			releases(hold)
			hold = need.Get(second(t.Context(), weight))(t)
			releases(hold)
		})
	}
}

// contender returns the contender of a process that has no other one.
func contender(t *testing.T, s *Store, lock, server, path string) Contender {
	t.Helper()
	locker := need.Get(s.Locks[lock].Dial(t.Context(), Options{Servers: []string{server}, Goroutines: 1, Permits: 3}))(t)
	t.Cleanup(func() { need.WantErr(t, "Close", locker.Close(), nil) })
	return need.Get(locker.Contender(path))(t)
}

// testTraffic checks a lock whose acquisition and release take two writes: the observer has to count that many. If the store reports
// packets, the observer has to count those, too.
func testTraffic(t *testing.T, s *Store, lock, server string, packets bool) {
	t.Helper()
	o := need.Get(s.Observe(t.Context(), Place{Servers: []string{server}, Lock: lock, Paths: 1}))(t)
	defer o.Close()
	turn := contender(t, s, lock, server, o.Paths()[0])
	before, known := o.Traffic()
	for range 3 {
		need.OK(t, need.Get(turn(t.Context(), 1))(t).Release())
	}
	after, stillKnown := o.Traffic()
	if !known || !stillKnown || after.Writes != before.Writes+6 || packets != (after.Packets > before.Packets) {
		t.Errorf("three turns of two writes: got %+v, then %+v", before, after)
	}
}
