package redislock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlock/tierlock/internal/redisserver"
	"github.com/tierlock/tierlock/internal/redisserver/redisservertest"
	"github.com/tierlock/tierlock/tier"
)

// clusterClient is a client of a cluster, which ends with the test.
func clusterClient(t *testing.T, c *redisserver.Cluster) *redis.ClusterClient {
	t.Helper()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), PoolSize: 1000}) // after so many failures the client tries on after its end
	t.Cleanup(func() { client.Close() })
	return client
}

// clusterLocks are those of another process at a cluster.
func clusterLocks(t *testing.T, c *redisserver.Cluster, opts ...Option) *tier.Registry {
	t.Helper()
	locks, err := New(clusterClient(t, c), append([]Option{WithLeaseTTL(ttl)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { locks.Close() })
	return locks
}

// pathsAt returns n paths, each in another slot of the server.
func pathsAt(t *testing.T, client *redis.ClusterClient, s *redisserver.Server, prefix string, n int) (paths []string) {
	t.Helper()
	ctx, taken := soon(t), make(map[int64]bool)
	for i := 0; len(paths) < n; i++ {
		path := fmt.Sprint(prefix, i)
		one, err := client.MasterForKey(ctx, path)
		if err != nil {
			t.Fatal(err)
		}
		if one.Options().Addr != s.Addr() {
			continue
		}
		slot, err := client.ClusterKeySlot(ctx, path).Result()
		if err != nil {
			t.Fatal(err)
		}
		if !taken[slot] {
			taken[slot] = true
			paths = append(paths, path)
		}
	}
	return paths
}

// firstLocks are those of the first process at a cluster, which is there when it returns.
func firstLocks(t *testing.T, c *redisserver.Cluster, opts ...Option) *tier.Registry {
	t.Helper()
	locks := clusterLocks(t, c, append(opts, WithNewServer())...)
	take(t, locks, "first")
	return locks
}

func take(t *testing.T, locks *tier.Registry, path string) {
	t.Helper()
	hold, err := locks.Mutex(path).Acquire(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := hold.Release(); err != nil {
		t.Error(err)
	}
}

// All keys of a lock are in one slot, and messages reach every process.
func TestLockInACluster(t *testing.T) {
	t.Parallel()
	c := redisservertest.StartCluster(t, 3, redisserver.Config{NoSync: true})
	a, b := firstLocks(t, c, tier.WithHandOff(0)), clusterLocks(t, c, tier.WithHandOff(0))
	for _, path := range []string{"job", "{job}:1", "other"} {
		hold, err := a.Mutex(path).Acquire(soon(t))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Eval(soon(t), hold, increment, []string{"{" + path + "}:count"}); path != "{job}:1" && (err != nil || got == nil) {
			t.Errorf("Eval: %v, %v", got, err)
		}
		next := make(chan *tier.Hold, 1)
		go func() {
			h, err := b.Mutex(path).Acquire(soon(t))
			if err != nil {
				t.Error(err)
			}
			next <- h
		}()
		ended(t, "the holder hears of the one who waits", hold.Contested(), ttl/2)
		if err := hold.Release(); err != nil {
			t.Error(err)
		}
		h := <-next
		if h.Token() <= hold.Token() {
			t.Errorf("token %d after %d", h.Token(), hold.Token())
		}
		if err := h.Release(); err != nil {
			t.Error(err)
		}
	}
}

// What was lost in a fail-over may be any lock of that primary, and nothing of the others. Once the
// leases are over nobody has to wait any more, for whichever path, in whichever process.
func TestQuarantineInAClusterIsThatOfOnePrimaryForAllItsPaths(t *testing.T) {
	t.Parallel()
	for name, killed := range map[string]bool{"taken over": false, "killed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := redisservertest.StartCluster(t, 3, redisserver.Config{NoSync: true})
			client, locks := clusterClient(t, c), firstLocks(t, c)
			early := pathsAt(t, client, c.Members[0], "early:", 50)
			late := pathsAt(t, client, c.Members[0], "late:", 100)
			elsewhere := pathsAt(t, client, c.Members[1], "elsewhere:", 1)[0]

			promoted := time.Now()
			if killed {
				c.Members[0].Kill()
			}
			if err := c.Promote(soon(t), c.Replica(0)); err != nil {
				t.Fatal(err)
			}
			var all sync.WaitGroup
			for _, path := range early {
				all.Go(func() {
					hold, err := locks.Mutex(path).Acquire(soon(t))
					if err != nil {
						t.Error(err)
						return
					}
					if d := time.Since(promoted); d < ttl {
						t.Errorf("%s was granted %v after the promotion", path, d)
					}
					hold.Release()
				})
			}
			all.Go(func() {
				hold, err := locks.Mutex(elsewhere).TryAcquire(soon(t))
				if errors.Is(err, tier.ErrLocked) {
					t.Errorf("a lock at another primary: %v", err)
				} else if err == nil {
					hold.Release()
				}
			})
			all.Wait()
			for i, locks := range []*tier.Registry{locks, clusterLocks(t, c)} {
				ctx := soon(t)
				for _, path := range late[50*i : 50*(i+1)] {
					hold, err := locks.Mutex(path).TryAcquire(ctx)
					for err != nil && !errors.Is(err, tier.ErrLocked) && ctx.Err() == nil { // a client may find the dead server first
						hold, err = locks.Mutex(path).TryAcquire(ctx)
					}
					if err != nil {
						t.Fatalf("process %d, after the quarantine: %v", i+1, err)
					}
					hold.Release()
				}
			}
			leavesNoRecordOfPaths(t, client)
		})
	}
}

// leavesNoRecordOfPaths checks that what never expires does not grow with the paths.
func leavesNoRecordOfPaths(t *testing.T, client *redis.ClusterClient) {
	t.Helper()
	err := client.ForEachMaster(soon(t), func(ctx context.Context, one *redis.Client) error {
		keys, err := one.Keys(ctx, "*").Result()
		for _, key := range keys {
			if one.PTTL(ctx, key).Val() < 0 && key != recordKeys("")[1] {
				t.Errorf("%s never expires", key)
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
