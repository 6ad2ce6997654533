package redislock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/logtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/redisserver"
	"github.com/tierlock/tierlock/internal/test/waittest"
	"github.com/tierlock/tierlock/tier"
)

func TestBadOptionsAreNamed(t *testing.T) {
	waittest.Refused(t, func(o tier.RegistryOption) error {
		_, err := New(t.Context(), new(redis.Client), o)
		return err
	}, map[string]tier.RegistryOption{
		"want a multiple of 1ms":             tier.WithLeaseTTL(time.Second + time.Microsecond),
		"want 1s to":                         tier.WithLeaseTTL(2 * time.Hour),
		"lease margin -1s":                   tier.WithLeaseMargin(-time.Second),
		"nil logger":                         tier.WithLogger(nil),
		"label of 257 bytes":                 tier.WithLabel(strings.Repeat("x", 257)),
		"linger -1ns":                        tier.WithLinger(-1),
		"option of type <nil>":               nil,
		"option of type redislock.elsewhere": elsewhere{},
	})
}

func TestClientsThatCannotDoAreRefused(t *testing.T) {
	for _, client := range []redis.UniversalClient{nil, (*redis.Client)(nil), (*redis.ClusterClient)(nil), (*redis.Ring)(nil)} {
		need.That(t, fmt.Sprintf("%T: no error", client), need.ErrOf(New(t.Context(), client)) != nil)
	}
}

// Each path has a queue for its lock, and another one for its permits.
func TestPathsOfLocks(t *testing.T) {
	of := make(map[string]string)
	for path, ok := range map[string]bool{
		"": false, "a": true, "a:a": true, "{a}": false, "{a}a": true, "a{a}": true, "a:{a}": true, "{a}:a": true, "b:{a}:c": true,
		"{}": false, "a{b": false, "a}b": false, "}{a}": false, "{a}{b}": false, "{a{b}": false,
		"{a}:tierlock:queue": false, "b:{a}:tierlock:leases": false, "a:tierlock:state": false, "{a}:tierlock:permits": false,
		"{tierlock:primary}:x": false, "a:tierlock:other": true, "tierlock:queue": true,
	} {
		need.Equal(t, fmt.Sprintf("%.40q is a path", path), ValidatePath(path) == nil, ok)
		for permits := 0; ok && permits < 2; permits++ {
			queue := keysOf(at(queue.Ref{Path: path, Permits: permits}))[1]
			other, shared := of[queue]
			need.That(t, fmt.Sprintf("%q and %q share %q", path, other, queue), !shared)
			of[queue] = path
		}
	}
}

// When a session begins, the process checks the server's settings, and warns of settings that may break promises.
func TestServerThatMayBreakPromisesIsWarnedAbout(t *testing.T) {
	t.Parallel()
	e := childtest.StartEnsemble(t, redisserver.StartEnsemble, 2, redisserver.Config{NoSync: true})
	for _, tt := range []struct{ command, want string }{
		{"PING", "min-replicas-to-write"},
		{"CONFIG SET min-replicas-to-write 1", ""},
		{"CONFIG SET maxmemory-policy allkeys-lru", ""}, // without a limit on memory, no key is evicted
		{"CONFIG SET maxmemory 100mb", "maxmemory-policy"},
	} {
		asks(t, e.Members[0], tt.command)
		log, logger := logtest.New(slog.LevelWarn)
		launch(t, e.Addrs(), tier.WithLogger(logger)).end()
		got := strings.Join(log.Lines(slog.LevelWarn, "redislock: m"), "") // leaves out warnings about a grace period
		need.That(t, fmt.Sprintf("after %s: %q, want %q", tt.command, got, tt.want),
			(got != "") == (tt.want != "") && strings.Contains(got, tt.want))
	}
	asks(t, e.Members[0], "CONFIG SET maxmemory 0", "ACL SETUSER default -config")
	need.Equal(t, "a grace period where the configuration cannot be read", startAt(t, e.Addrs()).gracePeriod(), ttl+usualLag+rounding)
}

func TestErrorsOfTheServerAreToldApart(t *testing.T) {
	for want, texts := range map[queue.Outcome][]string{
		queue.Failed: {
			"NOREPLICAS Not enough good replicas", "LOADING Redis is loading the dataset", "READONLY You can't write", "OOM command not allowed",
			"CLUSTERDOWN The cluster is down",
			"MISCONF Redis is configured to save RDB snapshots", "BUSY Redis is busy",
			"MASTERDOWN Link with MASTER is down", "TRYAGAIN Multiple keys request during rehashing of slot",
			"ERR Error running script (call to f_1): @user_script:1: -NOREPLICAS Not enough",
		},
		queue.Denied: {"NOPERM this user has no permissions", "WRONGTYPE Operation against a key", "ERR unknown command"},
	} {
		for _, text := range texts {
			need.Equal(t, text, outcomeOf(fmt.Errorf("sent: %w", answered(text))), want)
		}
	}
	for _, err := range []error{context.DeadlineExceeded, errors.New("EOF"), redis.ErrClosed} {
		need.Equal(t, fmt.Sprint(err), outcomeOf(err), queue.Unknown)
	}
}

// If a server refuses a request temporarily, or does not answer it, the error names the address of the server.
func TestErrorsNameTheServer(t *testing.T) {
	t.Parallel()
	s := ownServer(t, redisserver.Config{NoSync: true})
	locks := registry(t, redis.NewClient(&redis.Options{Addr: s.Addr()}))
	take(t, locks, "x")
	asks(t, s, "CONFIG SET maxmemory 1")
	need.WantMention(t, try(locks, "x"), "Redis at "+s.Addr()+" does not serve: ", "OOM command not allowed")
	s.Kill()
	eventually(t, "an error that names the server", func() bool {
		err := locks.Err()
		return err != nil && strings.Contains(err.Error(), "Redis at "+s.Addr()+" cannot be reached: ")
	})
	for client, want := range map[redis.UniversalClient]string{
		redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"a:1", "b:2"}}):                "the Redis cluster at a:1, b:2",
		redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{}}): "the Redis primary that Sentinels name",
	} {
		need.Equal(t, "the endpoint", endpoint(client), want)
		client.Close()
	}
}

// The type answered is an error that a server has returned.
type answered string

func (a answered) Error() string { return string(a) }
func (answered) RedisError()     {}

func TestClientThatIsClosedFirstLosesEveryLock(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: server(t).Addr()})
	locks := registry(t, client, tier.WithLeaseTTL(ttl))
	hold := need.Get(locks.Mutex(lockPath(t)).Acquire(soon(t)))(t)
	client.Close()
	ended(t, "the loss", hold.Lost())
	ended(t, "the end of the registry", locks.Done())
	wantErr(t, hold.Release(), tier.ErrLost)
}

// elsewhere is an option of another package.
type elsewhere struct{ tier.RegistryOption }
