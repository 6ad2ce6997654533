package redislock

import (
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlock/tierlock/internal/test/logtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/redisserver"
	"github.com/tierlock/tierlock/tier"
)

// A replica refuses the command that makes a value persistent, and its data may be old. Load must therefore ask the primary.
func TestValueStaysAndOnlyAPrimaryLoadsIt(t *testing.T) {
	t.Parallel()
	h := hold(t)
	mu, key := tier.New(start(t).tier).Mutex(lockPath(t)), valueOf(lockPath(t))
	need.OK(t, h.Save(soon(t), []byte("first")))
	need.Equal(t, "expires", outside(t).TTL(soon(t), key).Val(), -1)
	outside(t).Expire(soon(t), key, time.Hour)
	need.Equal(t, "value", string(need.Get(mu.Load(soon(t)))(t).Data), "first")
	need.Equal(t, "expires after a Load", outside(t).TTL(soon(t), key).Val(), -1)

	need.OK(t, outside(t).Set(soon(t), key, "another program's", 0).Err())
	need.WantMention(t, h.Save(soon(t), []byte("second")), "WRONGTYPE")
	need.WantMention(t, need.ErrOf(mu.Load(soon(t))), "WRONGTYPE")
	need.OK(t, outside(t).Del(soon(t), key).Err())
	need.OK(t, h.Save(soon(t), []byte("second")))
	need.OK(t, h.Forget(soon(t)))
	mustRelease(t, h)
	need.OK(t, outside(t).Del(soon(t), key).Err())
}

func TestFirstSaveWarnsOfAServerThatMayEvictValues(t *testing.T) {
	t.Parallel()
	s := ownServer(t, redisserver.Config{NoSync: true})
	for policy, want := range map[string]int{"noeviction": 0, "volatile-lru": 0, "allkeys-lru": 1} {
		asks(t, s, "CONFIG SET maxmemory 100mb", "CONFIG SET maxmemory-policy "+policy)
		log, logger := logtest.New(slog.LevelWarn)
		locks := registry(t, redis.NewClient(&redis.Options{Addr: s.Addr()}), tier.WithLogger(logger))
		h := need.Get(locks.Mutex("/" + policy).Acquire(soon(t)))(t)
		for range 2 {
			need.OK(t, h.Save(soon(t), nil))
		}
		need.OK(t, h.Release())
		eventually(t, "warnings with "+policy, func() bool {
			return len(log.Lines(slog.LevelWarn, "redislock: the server may evict values")) == want
		})
	}
}
