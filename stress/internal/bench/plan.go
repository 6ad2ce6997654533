package bench

import (
	"time"

	"github.com/tierlock/tierlock/stress/internal/load"
	"github.com/tierlock/tierlock/stress/internal/store"
)

// A work is a workload: processes acquire one or several locks again and again for a while.
type work struct {
	load.Config // numbers of processes, goroutines and locks, and the duration of a section
	locks       []contestant
}

// contestant is a lock that is measured, with its settings.
type contestant struct {
	name    string
	store   *store.Store
	kind    string
	handOff *time.Duration
	linger  *time.Duration
}

// plan lists what is measured on the servers of a store.
type plan struct {
	store   *store.Store
	locks   []contestant // the locks for the workloads that each store has
	more    []work
	goals   []goal
	library string // the module of the client library whose lock is the peer
}

// name returns the name of the target in the Makefile. The file with the figures has the same name.
func (p plan) name() string { return "bench-" + p.store.Name }

const (
	asItComes   = "tierlock"
	inOrder     = "tierlock, strict order"
	asItComesPG = "tierlock on advisory locks"
	inOrderPG   = "tierlock on advisory locks, strict order"
)

var (
	strict    = time.Duration(0)
	lingering = time.Second
)

// The function usual returns the workloads of every store. In a section, a goroutine sleeps while it holds the lock. If it computed
// instead, the machine would lack processors.
func usual(locks []contestant) (all []work) {
	for _, section := range []time.Duration{0, time.Millisecond, 10 * time.Millisecond} {
		for _, n := range [][2]int{{4, 50}, {1, 100}, {4, 1}} { // number of processes, and number of goroutines in each
			all = append(all, work{load.Config{Procs: n[0], Goroutines: n[1], Section: section}, locks})
		}
	}
	return all
}

func (p plan) works() []work { return append(usual(p.locks), p.more...) }

// The function pair returns tierlock's mutex with two settings: the default one and strict order.
func pair(asItComes, inOrder string, s *store.Store) []contestant {
	return []contestant{{name: asItComes, store: s, kind: "mutex"}, {name: inOrder, store: s, kind: "mutex", handOff: &strict}}
}

// The function peers returns the lock that users of the store usually take, and that lock behind a local mutex. Teams add a local mutex to
// have one contender for each process.
func peers(name string, s *store.Store, kind string) []contestant {
	return []contestant{{name: perGoroutine(name), store: s, kind: kind}, {name: behindLocal(name), store: s, kind: kind + "-local"}}
}

func perGoroutine(name string) string { return name + " per goroutine" }
func behindLocal(name string) string  { return "local mutex, one " + name + " per process" }

const (
	zkLock      = "zk.Lock"
	etcdMutex   = "concurrency.Mutex"
	advisory    = "pg_advisory_lock"
	rueidislock = "rueidislock"
	getLock     = "GET_LOCK"
	lockTable   = "lock table that polls"

	many       = "4 × 50, empty section"
	longer     = "4 × 50, section of 1 ms"
	alone      = "1 × 100, empty section"
	spread     = "1 × 200 on 1000 locks, empty section"
	shared     = "4 × 50 on 200 locks, empty section"
	reading    = "4 × 50 with 90 % reads, section of 1 ms"
	readMost   = "4 × 50 with 99 % reads, section of 1 ms"
	permitted  = "4 × 50 of 10 permits, up to 1 at once, section of 1 ms"
	portioned  = "4 × 50 of 10 permits, up to 4 at once, section of 1 ms"
	byMutex    = "tierlock, mutex"
	readers    = "tierlock, RWMutex"
	semaphore  = "tierlock, Semaphore"
	withLinger = "tierlock, linger 1 s"
)

var zooKeeperLocks = append(pair(asItComes, inOrder, store.ZooKeeper), peers(zkLock, store.ZooKeeper, "zk")...)

// plans are the plans of the stores, by the name of the store. The plan of PostgreSQL has both kinds of locks that tierlock offers
// there.
var plans = map[string]plan{
	"zookeeper": {
		store: store.ZooKeeper,
		locks: zooKeeperLocks,
		more:  zooKeeperOnly(),
		goals: []goal{
			faster(alone, asItComes, 1000, perGoroutine(zkLock)),
			faster(many, asItComes, 200, perGoroutine(zkLock)),
			faster(many, inOrder, 1.5, perGoroutine(zkLock)),
			faster(spread, asItComes, 1.3, perGoroutine(zkLock)),
			faster(shared, asItComes, 1.7, perGoroutine(zkLock)),
			faster(reading, readers, 0.8, byMutex),
			faster(readMost, readers, 20, byMutex),
			atLeast(longer, asItComes, inUse, 0.9),
			atLeast(longer, asItComes, jainProcesses, 0.99),
			atLeast(permitted, semaphore, inUse, 0.9),
			atLeast(portioned, semaphore, inUse, 0.8),
			atMost(many, asItComes, awayOfBound, 1),
			atMost(longer, asItComes, awayOfBound, 1),
			atMost(many, inOrder, writes, 1.01),
		},
		library: "github.com/go-zookeeper/zk",
	},
	"etcd": {
		store: store.Etcd,
		locks: append(pair(asItComes, inOrder, store.Etcd), peers(etcdMutex, store.Etcd, "etcd")...),
		goals: []goal{
			faster(alone, asItComes, 1000, perGoroutine(etcdMutex)),
			faster(many, asItComes, 1000, perGoroutine(etcdMutex)),
			faster(many, inOrder, 3, perGoroutine(etcdMutex)),
			atLeast(longer, asItComes, jainProcesses, 0.99),
			atMost(longer, asItComes, awayOfBound, 1),
			atMost(many, inOrder, writes, 1.01),
		},
		library: "go.etcd.io/etcd/client/v3",
	},
	"postgres": {
		store: store.Postgres,
		locks: append(append(pair(asItComes, inOrder, store.Postgres), pair(asItComesPG, inOrderPG, store.PostgresAdvisory)...),
			peers(advisory, store.Postgres, "advisory")...),
		goals: []goal{
			faster(many, asItComes, 20, perGoroutine(advisory)),
			faster(many, asItComesPG, 20, perGoroutine(advisory)),
			atLeast(longer, asItComes, jainProcesses, 0.99),
			atLeast(longer, asItComesPG, jainProcesses, 0.99),
			atMost(longer, asItComes, awayOfBound, 1),
			atMost(longer, asItComesPG, awayOfBound, 1),
		},
		library: "github.com/jackc/pgx/v5",
	},
	"redis": {
		store: store.Redis,
		locks: append(pair(asItComes, inOrder, store.Redis), peers(rueidislock, store.Redis, "rueidislock")...),
		goals: []goal{
			faster(many, asItComes, 60, perGoroutine(rueidislock)),
			atLeast(longer, asItComes, jainProcesses, 0.99),
			atMost(longer, asItComes, awayOfBound, 1),
		},
		library: "github.com/redis/rueidis",
	},
	"mysql": {
		store: store.MySQL,
		locks: append(append(pair(asItComes, inOrder, store.MySQL), contestant{name: lockTable, store: store.MySQL, kind: "table"}),
			peers(getLock, store.MySQL, "get_lock")...),
		goals: []goal{
			faster(many, asItComes, 20, perGoroutine(getLock)),
			atLeast(longer, asItComes, inUse, 0.9),
			atLeast(longer, asItComes, jainProcesses, 0.98),
			atMost(longer, asItComes, awayOfBound, 1),
		},
		library: "github.com/go-sql-driver/mysql",
	},
}

// zooKeeperOnly returns workloads that only ZooKeeper has: with many locks, with distant servers, and with RWMutexes and semaphores.
func zooKeeperOnly() []work {
	mine := func(name, kind string) contestant { return contestant{name: name, store: store.ZooKeeper, kind: kind} }
	keeps := mine(withLinger, "mutex")
	keeps.linger = &lingering
	scattered := []contestant{mine(asItComes, "mutex"), keeps, mine(perGoroutine(zkLock), "zk")}
	either, permits := []contestant{mine(readers, "rw"), mine(byMutex, "mutex")}, []contestant{mine(semaphore, "semaphore")}
	const ms = time.Millisecond
	return []work{
		{load.Config{Procs: 1, Goroutines: 200, Paths: 1000}, scattered},
		{load.Config{Procs: 4, Goroutines: 50, Paths: 200}, scattered},
		// The round trip is as long as one between two neighboring continents, so that the machine's own time is negligible.
		{load.Config{Procs: 4, Goroutines: 1, RTT: 20 * ms}, zooKeeperLocks},
		{load.Config{Procs: 4, Goroutines: 50, Section: ms, Reads: 0.9}, either},
		{load.Config{Procs: 4, Goroutines: 50, Section: ms, Reads: 0.99}, either},
		{load.Config{Procs: 4, Goroutines: 50, Section: ms, Permits: 10, Weight: 1}, permits},
		{load.Config{Procs: 4, Goroutines: 50, Section: ms, Permits: 10, Weight: 4}, permits},
	}
}
