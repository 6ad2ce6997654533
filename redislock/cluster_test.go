package redislock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/redisserver"
	"github.com/tierlock/tierlock/tier"
)

// clusterClient returns a client of a cluster. It ends with the test.
func clusterClient(t *testing.T, c *redisserver.Cluster) *redis.ClusterClient {
	t.Helper()
	// This pool is large, because the client might otherwise still dial after it was closed. It does that when as many connections have
	// failed as the pool has.
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), PoolSize: 1000})
	t.Cleanup(func() { client.Close() })
	return client
}

// pathsAt returns n paths whose slots are at the server s.
func pathsAt(t *testing.T, client *redis.ClusterClient, s *redisserver.Server, prefix string, n int) (paths []string) {
	t.Helper()
	for i := 0; len(paths) < n; i++ {
		path := fmt.Sprint(prefix, i)
		if one, err := client.MasterForKey(soon(t), path); err != nil {
			t.Fatal(err)
		} else if one.Options().Addr == s.Addr() {
			paths = append(paths, path)
		}
	}
	return paths
}

// firstLocks returns the registry of the first process that uses a cluster. The process has written the records of all primaries.
func firstLocks(t *testing.T, client *redis.ClusterClient) *tier.Registry {
	t.Helper()
	locks := registry(t, client, WithNewServer(), tier.WithStrictOrder())
	take(t, locks, "first")
	return locks
}

// All keys of a lock are in one slot. Its messages reach every process, at any server.
func TestLockInACluster(t *testing.T) {
	t.Parallel()
	c := childtest.StartEnsemble(t, redisserver.StartCluster, 3, redisserver.Config{NoSync: true})
	a, b := firstLocks(t, clusterClient(t, c)), registry(t, clusterClient(t, c), tier.WithStrictOrder())
	for _, path := range []string{"job", "{job}:1", "b:{job}:c"} {
		hold := need.Get(a.Mutex(path).Acquire(soon(t)))(t)
		need.That(t, "Eval: no result", need.Get(Eval(soon(t), hold, increment, []string{tagged(path) + ":count"}))(t) != nil)
		mustRelease(t, need.Get(a.Semaphore(path, 2).TryAcquire(soon(t), 1))(t))
		next := make(chan error, 1)
		go func() { next <- b.Mutex(path).Do(soon(t), func(context.Context) error { return nil }) }()
		ended(t, "the holder learns of the waiter", hold.Contended())
		mustRelease(t, hold)
		wantErr(t, <-next, nil)
	}
}

// If the keys of a script are in another slot than the lock, the error says what to change, and nothing is written.
func TestEvalAcrossSlotsIsRefusedAndWritesNothing(t *testing.T) {
	t.Parallel()
	client := clusterClient(t, childtest.StartEnsemble(t, redisserver.StartCluster, 3, redisserver.Config{NoSync: true}))
	locks := firstLocks(t, client)
	for _, c := range []struct {
		second, count string // the path of another lock, and the key of the script; the first lock is at {a}:1
		writes        bool
	}{{"{b}:1", "{a}:count", false}, {"{a}:2", "{b}:count", false}, {"{a}:2", "{a}:count", true}} {
		bundle := need.Get(tier.AcquireAll(soon(t), locks.Mutex("{a}:1"), locks.Mutex(c.second)))(t)
		_, err := Eval(soon(t), bundle, increment, []string{c.count})
		if c.writes {
			wantErr(t, err, nil)
		} else {
			need.WantMention(t, err, "{a}:1", c.second, "not in one slot", "hash tag")
			need.That(t, "the outcome is known", !errors.Is(err, tier.ErrUnknown))
		}
		need.Equal(t, c.count+" is there", client.Exists(soon(t), c.count).Val() == 1, c.writes)
		mustRelease(t, bundle)
	}
}

// Each command sends a list of the known primaries, which must not grow without limit. Now and then, all primaries are forgotten, and the
// records of the present ones are read again.
func TestPrimariesOfManyFailOversAreForgotten(t *testing.T) {
	t.Parallel()
	c := childtest.StartEnsemble(t, redisserver.StartCluster, 3, redisserver.Config{NoSync: true})
	client := clusterClient(t, c)
	take(t, firstLocks(t, client), "before")
	o, _, err := newOptions([]tier.RegistryOption{tier.WithLeaseTTL(ttl)})
	need.OK(t, err)
	s := open(client, o)
	t.Cleanup(func() { s.tier.Close() })
	met := func() int { return strings.Count(s.met(), "=") }
	eventually(t, "the primaries are met", func() bool { return met() == 3 })
	for i := range 100 {
		need.OK(t, s.meet(soon(t), []string{"stranger", fmt.Sprint("former", i), micros(time.Hour), "0"}))
		need.AtMost(t, "primaries that are sent", met(), fewest)
	}
	for _, member := range c.Members[:3] { // the other members are replicas
		path := pathsAt(t, client, member, "after:", 1)[0]
		a := s.Do(soon(t), queue.Command{Op: queue.Look, Ref: queue.Ref{Path: path, ID: s.Name("")}})
		need.Equal(t, "a look at a lock of each: "+fmt.Sprint(a.Err), a.Outcome, queue.Done)
	}
}

// A failover may lose locks of one primary only. Therefore only the paths of that primary have a grace period. After it, each process can
// get the lock at each path.
func TestGracePeriodInAClusterIsThatOfOnePrimaryForAllItsPaths(t *testing.T) {
	t.Parallel()
	need.Each(t, map[string]bool{"taken over": false, "killed": true}, func(t *testing.T, killed bool) {
		t.Parallel()
		c := childtest.StartEnsemble(t, redisserver.StartCluster, 3, redisserver.Config{NoSync: true})
		client := clusterClient(t, c)
		locks := firstLocks(t, client)
		early, late := pathsAt(t, client, c.Members[0], "early:", 50), pathsAt(t, client, c.Members[0], "late:", 100)
		elsewhere := pathsAt(t, client, c.Members[1], "elsewhere:", 1)[0]

		promoted := time.Now()
		if killed {
			c.Members[0].Kill()
		}
		need.OK(t, c.Promote(soon(t), c.Replica(0)))
		var all sync.WaitGroup
		for _, path := range early {
			all.Go(func() {
				err := locks.Mutex(path).Do(soon(t), func(context.Context) error {
					need.AtLeast(t, path+" was granted after the promotion after", time.Since(promoted), ttl)
					return nil
				})
				if err != nil && !errors.Is(err, tier.ErrLost) { // on a slow machine the lock may be lost
					t.Error(err)
				}
			})
		}
		need.That(t, "a lock at another primary is locked", !errors.Is(try(locks, elsewhere), tier.ErrLocked))
		all.Wait()
		for i, locks := range []*tier.Registry{locks, registry(t, clusterClient(t, c))} {
			ctx := soon(t)
			for _, path := range late[50*i : 50*(i+1)] {
				err := try(locks, path)
				for err != nil && !errors.Is(err, tier.ErrLocked) && ctx.Err() == nil { // the client may try the dead server first
					err = try(locks, path)
				}
				need.WantErr(t, fmt.Sprintf("process %d, after the grace period", i+1), err, nil)
			}
		}
		// The number of keys that never expire does not depend on the number of paths.
		err := client.ForEachMaster(soon(t), func(ctx context.Context, one *redis.Client) error {
			keys, err := one.Keys(ctx, "*").Result()
			for _, key := range keys {
				need.That(t, key+" never expires", one.PTTL(ctx, key).Val() >= 0 || key == recordKeys("")[1])
			}
			return err
		})
		need.WantErr(t, "each primary", err, nil)
	})
}
