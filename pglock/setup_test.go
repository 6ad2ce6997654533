package pglock

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/pgserver"
	"github.com/tierlock/tierlock/internal/test/tiertest"
	"github.com/tierlock/tierlock/internal/test/waittest"
	"github.com/tierlock/tierlock/tier"
)

var (
	soon, wantErr, mustRelease, eventually = waittest.Soon, waittest.Err, waittest.Release, waittest.Eventually
	lockPath, must                         = waittest.Path, waittest.Acquire
)

type (
	lock = waittest.Lock
	wait = waittest.Wait
)

// TestMain runs more tests at a time than there are processors, because the tests mostly wait for leases.
func TestMain(m *testing.M) {
	flag.Set("test.parallel", "4") // a flag on the command line overrides this
	shared.Main(m)
}

// ttl is the TTL in tests that wait for the end of a lease. unhurried is the TTL of processes that must keep their leases, even on a busy
// machine.
const ttl, unhurried = 2 * time.Second, time.Minute

// shared is the PostgreSQL server that all tests share. It has the schema, and a pool that belongs to no process.
var shared = waittest.Shared[site]{Start: func() (s site, stop func(), err error) {
	if s.server, err = pgserver.Start(context.Background(), pgserver.Config{NoSync: true}); err != nil {
		return s, nil, err
	}
	config, err := pgxpool.ParseConfig(pgserver.PlainURL(s.server.Addr()))
	if err != nil {
		return s, nil, err
	}
	config.MaxConns = 64 // parallel tests have many open transactions, some of which wait for others
	if s.pool, err = pgxpool.NewWithConfig(context.Background(), config); err == nil {
		err = Migrate(context.Background(), s.pool)
	}
	return s, func() {
		s.pool.Close()
		s.server.Stop()
	}, err
}}

type site struct {
	server *pgserver.Server
	pool   *pgxpool.Pool
}

func server(t testing.TB) *pgserver.Server { return shared.Get(t).server }
func outside(t testing.TB) *pgxpool.Pool   { return shared.Get(t).pool }

// sharedURL returns the URL of the shared server.
func sharedURL(t testing.TB) string {
	t.Helper()
	return pgserver.PlainURL(server(t).Addr())
}

// alone starts a server with the schema for one test.
func alone(t *testing.T, settings ...string) (s *pgserver.Server, url string, outside *pgxpool.Pool) {
	t.Helper()
	s = childtest.Start(t, pgserver.Start, pgserver.Config{NoSync: true, Settings: settings})
	url = pgserver.PlainURL(s.Addr())
	return s, url, migrated(t, url)
}

// poolAt returns a pool. It is closed with the test.
func poolAt(t testing.TB, url string, changes ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config := need.Get(pgxpool.ParseConfig(url))(t)
	for _, change := range changes {
		change(config)
	}
	pool := need.Get(pgxpool.NewWithConfig(context.Background(), config))(t)
	t.Cleanup(pool.Close)
	return pool
}

// migrated creates the schema in a database, and returns a pool.
func migrated(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	pool := poolAt(t, url)
	need.OK(t, Migrate(soon(t), pool))
	return pool
}

// newID returns a random name in lower case, because PostgreSQL converts names without quotes to lower case.
func newID() string { return strings.ToLower(rand.Text()) }

// database creates an empty database at the shared server, and returns a superuser's URL.
func database(t *testing.T, with ...string) (url string) {
	t.Helper()
	url = pgserver.URL(server(t).Addr())
	name := "db_" + newID()
	exec(t, poolAt(t, url), "CREATE DATABASE "+name+" "+strings.Join(with, " "))
	return strings.Replace(url, "/postgres?", "/"+name+"?", 1)
}

// A flavour is one of the two kinds of locks in PostgreSQL.
type flavour struct {
	name   string
	front  func(context.Context, *pgxpool.Pool, ...tier.RegistryOption) (*tier.Registry, error)
	open   func(*pgxpool.Pool, options) (*queue.Tier, error)
	forget string // SQL that makes the server look like another server
}

var (
	tables     = flavour{"tables", New, open, "UPDATE tierlock.grace_period SET life = 'another' WHERE locks = 'tables'"}
	advisories = flavour{"advisory", NewAdvisory, openAdvisory, "UPDATE tierlock.grace_period SET life = 'another' WHERE locks = 'advisory'"}
	flavours   = []flavour{tables, advisories}
)

// forEach runs a test for each flavour.
func forEach(t *testing.T, test func(*testing.T, flavour)) {
	t.Parallel()
	for _, f := range flavours {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			test(t, f)
		})
	}
}

// A process stands for a process that uses the library. It has a tier with a pool of its own, and a test can disturb the connections of
// that pool.
type process struct {
	*queue.Tier
	pool    *pgxpool.Pool
	network *network
	label   string
}

// start starts a process at the shared server, with locks in tables.
func start(t *testing.T, opts ...tier.RegistryOption) *process {
	t.Helper()
	return tables.start(t, sharedURL(t), opts...)
}

// start starts a process, and waits until it is connected.
func (f flavour) start(t testing.TB, url string, opts ...tier.RegistryOption) *process {
	t.Helper()
	p := f.begin(t, url, opts...)
	contenders(t, p.at(t, "/x"))
	return p
}

// begin starts a process that ends with the test.
func (f flavour) begin(t testing.TB, url string, opts ...tier.RegistryOption) *process {
	t.Helper()
	p := &process{network: newNetwork(), label: newID()}
	p.pool = poolAt(t, url, func(c *pgxpool.Config) { c.ConnConfig.DialFunc = p.network.dial })
	o, _, err := newOptions(append([]tier.RegistryOption{tier.WithLeaseTTL(ttl), tier.WithLabel(p.label)}, opts...))
	if err == nil {
		p.Tier, err = f.open(p.pool, o)
	}
	need.OK(t, err)
	t.Cleanup(func() { p.Close() })
	return p
}

// Close ends the process with a goodbye.
func (p *process) Close() error {
	p.Tier.Close()
	p.network.close()
	p.pool.Close()
	return nil
}

// kill ends the process without a Goodbye. Its contenders stay at the server until its lease ends.
func (p *process) kill() {
	p.network.close()
	p.Close()
}

// forSuite returns the process in the form that the suite needs.
func (p *process) forSuite() *tiertest.Process {
	return &tiertest.Process{
		Tier:     p,
		Cut:      p.network.sever,
		Kill:     p.kill,
		Messages: p.network.messages,
		Blind:    func(g second.Grant) { g.(*queue.Contender).StopWatchdog() },
		Sleep:    func(g second.Grant, d time.Duration) { g.(*queue.Contender).Clock().Suspend(d) },
	}
}

// holds acquires the test's lock.
func (p *process) holds(t *testing.T) *tier.Hold { return waittest.Hold(t, tier.New(p)) }

// session returns the session of a process with locks in tables, as stored at the shared server.
func (p *process) session(t *testing.T) string {
	t.Helper()
	return ask[string](t, outside(t), "SELECT id FROM tierlock.session WHERE label = $1 AND expires > clock_timestamp()", p.label)
}

func (p *process) at(t testing.TB, path string) lock {
	t.Helper()
	return waittest.At(t, p, path, second.Options{})
}

func contenders(t testing.TB, l lock) []second.Contender {
	t.Helper()
	return need.Get(l.Contenders(soon(t)))(t)
}

// mustAcquire acquires the test's lock.
func (p *process) mustAcquire(t *testing.T) *queue.Contender {
	t.Helper()
	return must(t, p.at(t, lockPath(t)))
}

// waits starts an acquisition of the test's lock, and returns when its contender is in the queue.
func (p *process) waits(t *testing.T) *wait {
	t.Helper()
	l := p.at(t, lockPath(t))
	return waittest.Queue(t, l, func() int { return len(contenders(t, l)) })
}

// within waits until the function holds returns true. If that takes longer than limit, the test fails.
func within(t testing.TB, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	for begun := time.Now(); !holds(); time.Sleep(5 * time.Millisecond) {
		need.Must(t, fmt.Sprintf("not within %v: %s", limit, what), time.Since(begun) <= limit)
	}
}

// knows waits until a contender knows that it has lost the lock.
func knows(t *testing.T, c *queue.Contender, limit time.Duration) {
	t.Helper()
	within(t, limit, "the holder knows", func() bool { return c.Context().Err() != nil })
	wantErr(t, c.Err(), second.ErrLost)
}

// ask executes a query that returns one row with one column, and returns that value.
func ask[T any](t testing.TB, q querier, sql string, args ...any) (answer T) {
	t.Helper()
	err := q.QueryRow(soon(t), sql, args...).Scan(&answer)
	need.Must(t, fmt.Sprintf("%s: %v", sql, err), err == nil)
	return answer
}

func exec(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	_, err := pool.Exec(soon(t), sql, args...)
	need.Must(t, fmt.Sprintf("%s: %v", sql, err), err == nil)
}

func begun(t *testing.T, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx := need.Get(pool.Begin(soon(t)))(t)
	t.Cleanup(func() { tx.Rollback(context.Background()) })
	return tx
}

// left counts the contenders at path in the tables of the shared server.
func left(t testing.TB, path string) int {
	t.Helper()
	return ask[int](t, outside(t), "SELECT count(*) FROM tierlock.contender WHERE path = $1", path)
}
