//go:build unix

package everystore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	bsm "github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/waittest"
	"github.com/tierlock/tierlock/tier"
)

// A turn is a function that acquires a lock of some library, does the work under it, and releases it.
type turn func(ctx context.Context, work func()) error

// others(client, path) returns locks of other libraries at one path of a Redis server.
func others(client *redis.Client, path string) map[string]turn {
	sync := redsync.New(goredis.NewPool(client))
	obtain := bsm.New(client)
	return map[string]turn{
		"redsync": func(ctx context.Context, work func()) error {
			m := sync.NewMutex(path, redsync.WithExpiry(10*time.Second), redsync.WithTries(1000))
			if err := m.LockContext(ctx); err != nil {
				return err
			}
			work()
			_, err := m.UnlockContext(ctx)
			return err
		},
		"bsm/redislock": func(ctx context.Context, work func()) error {
			l, err := obtain.Obtain(ctx, path, 10*time.Second, &bsm.Options{RetryStrategy: bsm.LinearBackoff(20 * time.Millisecond)})
			if err != nil {
				return err
			}
			work()
			return l.Release(ctx)
		},
	}
}

// Every participant gets the lock, and no two participants have it at the same time. That is so although a process of tierlock sees no
// waiters of other libraries.
func TestLocksOfOtherLibrariesAndOursExcludeOneAnotherAndNobodyStarves(t *testing.T) {
	t.Parallel()
	addr, path := startRedis(t), pathOf(t)
	turns := others(outside(t, addr), path)
	ours := need.Get(redisAt(t, addr))(t)
	defer ours.Close()
	turns["ours"] = func(ctx context.Context, work func()) error {
		return ours.Mutex(path).Do(ctx, func(context.Context) error { work(); return nil })
	}
	var inside, starve atomic.Int32
	starve.Store(int32(len(turns)))
	var all sync.WaitGroup
	for name, turn := range turns {
		var count atomic.Int32
		for range 4 {
			all.Go(func() {
				for starve.Load() > 0 {
					err := turn(soon(t), func() {
						need.Equal(t, "how many have a turn with "+name, inside.Add(1), 1)
						time.Sleep(time.Millisecond)
						inside.Add(-1)
						if count.Add(1) == 5 {
							starve.Add(-1)
						}
					})
					if err != nil {
						t.Errorf("%s, after %d turns: %v", name, count.Load(), err)
						return
					}
				}
			})
		}
	}
	all.Wait()
}

func TestForeignLockIsWaitedForAndTriesFindItTaken(t *testing.T) {
	t.Parallel()
	addr, path := startRedis(t), pathOf(t)
	client := outside(t, addr)
	locks := need.Get(redisAt(t, addr, tier.WithLabel("<the label>"), tier.WithLinger(time.Second)))(t)
	defer locks.Close()
	l, turns := locks.Mutex(path), others(client, path)
	turns["a key of another type"] = func(ctx context.Context, work func()) error {
		for client.LPush(ctx, path, "x").Err() != nil { // repeated until the lock of tierlock, which lingers, has ended
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(10 * time.Millisecond):
			}
		}
		work()
		return client.Del(ctx, path).Err()
	}
	for name, turn := range turns {
		has, done, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		go func() { ended <- turn(soon(t), func() { close(has); <-done }) }()
		<-has
		need.WantErr(t, "a try beside "+name, need.ErrOf(l.TryAcquire(soon(t))), tier.ErrLocked)
		granted := make(chan error, 1)
		var hold *tier.Hold
		go func() {
			var err error
			hold, err = l.Acquire(soon(t))
			granted <- err
		}()
		var queue []tier.Contender
		waittest.Eventually(t, "ours behind the lock of "+name, func() bool {
			queue = need.Get(l.Contenders(soon(t)))(t)
			return len(queue) == 2
		})
		need.That(t, fmt.Sprintf("contenders beside %s: %+v, want the foreign lock first", name, queue), queue[0].ID != "" && queue[0].Token == 0)
		if q := queue[1]; q.Label != "<the label>" || q.Linger != time.Second || q.PID == 0 || q.Host == "" || time.Since(q.Since) > time.Hour {
			t.Errorf("%+v tells of itself", q)
		}
		need.WantErr(t, "Revoke of the lock of "+name, l.Revoke(soon(t)), errors.ErrUnsupported)
		need.Equal(t, "grants beside "+name, len(granted), 0)
		close(done)
		need.OK(t, <-granted)
		need.WantErr(t, name, <-ended, nil)
		need.OK(t, hold.Release())
	}
}

func outside(t *testing.T, addr string) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { client.Close() })
	return client
}
