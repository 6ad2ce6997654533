package redislock

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/redisserver"
	"github.com/tierlock/tierlock/internal/test/waittest"
	"github.com/tierlock/tierlock/tier"
)

var (
	soon, wantErr, mustRelease, eventually, ended = waittest.Soon, waittest.Err, waittest.Release, waittest.Eventually, waittest.Ended
	lockPath, mustAcquire                         = waittest.Path, waittest.Acquire
)

type lock = waittest.Lock

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

func TestMain(m *testing.M) {
	redis.SetLogger(silence{}) // the client would log each connection that breaks
	shared.Main(m)
}

// ttl is the TTL in tests that wait for the end of a lease, or for a heartbeat. long is the TTL in tests in which no lease may end, and in
// which a heartbeat must not change the result.
const ttl, long = 3 * time.Second, 10 * time.Minute

// shared is the Redis server that all tests share, with a client that belongs to no process.
var shared = waittest.Shared[site]{Start: func() (s site, stop func(), err error) {
	if s.server, err = redisserver.Start(context.Background(), redisserver.Config{NoSync: true}); err != nil {
		return s, nil, err
	}
	s.client = redis.NewClient(&redis.Options{Addr: s.server.Addr()})
	return s, func() {
		s.client.Close()
		s.server.Stop()
	}, remember(s.server.Addr())
}}

type site struct {
	server *redisserver.Server
	client *redis.Client
}

func server(t testing.TB) *redisserver.Server { return shared.Get(t).server }
func outside(t testing.TB) *redis.Client      { return shared.Get(t).client }

// ownServer starts a server for one test. Its record says that the primary took over long ago. Therefore it has no grace period.
func ownServer(t *testing.T, config redisserver.Config) *redisserver.Server {
	t.Helper()
	s := childtest.Start(t, redisserver.Start, config)
	need.OK(t, remember(s.Addr()))
	return s
}

// remember writes a record that says that the primary took over long ago. The server then has no grace period.
func remember(addr string) error {
	info, err := redisserver.Ask(addr, "INFO", "replication")
	if err != nil {
		return err
	}
	_, id, _ := strings.Cut(info[0], "master_replid:")
	_, err = redisserver.Ask(addr, "SET", recordKeys(id[:40])[0], "0")
	return err
}

// asks sends commands to a server. Each command is a line of words.
func asks(t *testing.T, s *redisserver.Server, commands ...string) {
	t.Helper()
	for _, command := range commands {
		_, err := redisserver.Ask(s.Addr(), strings.Fields(command)...)
		need.Must(t, fmt.Sprintf("%s: %v", command, err), err == nil)
	}
}

// renew makes a server look like another primary, which was just promoted.
func renew(t *testing.T, s *redisserver.Server) {
	t.Helper()
	asks(t, s, "REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE")
}

// start returns another process at the shared server.
func start(t *testing.T, opts ...tier.RegistryOption) *process {
	t.Helper()
	return startAt(t, []string{server(t).Addr()}, opts...)
}

// registry returns a registry over a client. Both end with the test.
func registry(t *testing.T, client redis.UniversalClient, opts ...tier.RegistryOption) *tier.Registry {
	t.Helper()
	t.Cleanup(func() { client.Close() })
	locks := need.Get(New(t.Context(), client, append([]tier.RegistryOption{tier.WithLeaseTTL(ttl)}, opts...)...))(t)
	t.Cleanup(func() { locks.Close() })
	return locks
}

// try acquires a lock with TryAcquire, and releases it.
func try(locks *tier.Registry, path string) error {
	hold, err := locks.Mutex(path).TryAcquire(context.Background())
	if err == nil {
		err = hold.Release()
	}
	return err
}

// take acquires and releases a lock.
func take(t *testing.T, locks *tier.Registry, path string) {
	t.Helper()
	need.OK(t, locks.Mutex(path).Do(soon(t), func(context.Context) error { return nil }))
}

func (p *process) at(t *testing.T, path string) lock { return p.with(t, path, second.Options{}) }

func (p *process) with(t *testing.T, path string, o second.Options) lock {
	t.Helper()
	return waittest.At(t, p.tier, path, o)
}

// anew returns a contender that has not entered the queue. The tier of the process does not know it, and never renews it.
func (p *process) anew(path string) queue.Ref { return queue.Ref{Path: path, ID: p.Name("")} }

// does sends a command once, and checks that it is executed.
func (p *process) does(t *testing.T, c queue.Command) queue.Answer {
	t.Helper()
	a := p.Do(soon(t), c)
	need.Must(t, fmt.Sprintf("%s: %+v", c.Op, a), a.Outcome == queue.Done)
	return a
}

// stands sends a command about a contender, and returns the view in the answer. For permits, weight is the number that the command asks
// for.
func (p *process) stands(t *testing.T, op queue.Op, c queue.Ref, weight int) queue.View {
	t.Helper()
	return p.does(t, queue.Command{Op: op, Ref: c, Weight: weight}).View
}

// queueAt starts an acquisition of the test's lock, and returns when it is in the queue at the shared server.
func queueAt(t *testing.T, l lock) *waittest.Wait {
	t.Helper()
	return waittest.Queue(t, l, func() int { return len(left(t, lockPath(t))) })
}

// left returns the queue of a lock at the shared server.
func left(t *testing.T, path string) []string {
	t.Helper()
	return need.Get(outside(t).ZRange(soon(t), keysOf(path)[1], 0, -1).Result())(t)
}

// key returns the value of a lock's key at the shared server. It returns "" if the key does not exist.
func key(t *testing.T, path string) string { return outside(t).Get(soon(t), path).Val() }
