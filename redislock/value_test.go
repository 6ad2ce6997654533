package redislock

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlock/tierlock/internal/test/logtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/redisserver"
	"github.com/tierlock/tierlock/slots"
	"github.com/tierlock/tierlock/tier"
)

// A replica refuses the command that makes a value persistent, and its data may be old. Load therefore has to ask the primary.
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

// If a server may evict the ledger of a slot, a job could run twice. Therefore slots refuse such a server.
func TestSlotsRefuseAServerThatMayEvictTheirLedger(t *testing.T) {
	t.Parallel()
	s := ownServer(t, redisserver.Config{NoSync: true})
	asks(t, s, "CONFIG SET maxmemory 100mb")
	runs := func(policy string) (runs int, err error) {
		asks(t, s, "CONFIG SET maxmemory-policy "+policy)
		asks(t, s, "ACL SETUSER default -config") // the process knows the policy even without this permission
		defer asks(t, s, "ACL SETUSER default +config")
		ctx, cancel := context.WithCancel(soon(t))
		defer cancel()
		locks := registry(t, redis.NewClient(&redis.Options{Addr: s.Addr()}))
		job := slots.New(locks.Mutex("/"+policy), slots.Every(10*time.Millisecond, time.Time{}))
		err = job.Run(ctx, func(context.Context, slots.Slot) error {
			runs++
			cancel()
			return nil
		})
		return runs, err
	}
	for _, policy := range []string{"noeviction", "volatile-lru"} {
		n, err := runs(policy)
		wantErr(t, err, context.Canceled)
		need.Equal(t, "slots with "+policy, n, 1)
	}
	n, err := runs("allkeys-lru")
	need.Equal(t, "slots with allkeys-lru", n, 0)
	need.WantMention(t, err, "slots: /allkeys-lru: ", s.Addr(), "maxmemory-policy is allkeys-lru", "set it to noeviction")
	asks(t, s, "CONFIG SET maxmemory 0") // without a limit on memory, no key is evicted
	n, err = runs("allkeys-lru")
	wantErr(t, err, context.Canceled)
	need.Equal(t, "slots with allkeys-lru, without a limit", n, 1)
}

func TestPolicyThatIsNotShownWarnsAndRefusesNothing(t *testing.T) {
	t.Parallel()
	log, logger := logtest.New(slog.LevelWarn)
	p := start(t, tier.WithLogger(logger))
	p.evicting.Store(unread)
	need.OK(t, p.mayEvict())
	mu := tier.New(p.tier).Mutex(lockPath(t))
	need.OK(t, mu.Do(soon(t), func(ctx context.Context) error { return tier.HoldFrom(ctx, mu).Save(ctx, nil) }))
	eventually(t, "a warning", func() bool { return len(log.Lines(slog.LevelWarn, "does not show its maxmemory-policy")) == 1 })
}

// If one primary of a cluster may evict values, the whole cluster counts as one that may.
func TestWorstPolicyOfAClusterCounts(t *testing.T) {
	for _, c := range [][3]string{
		{"", "", ""}, {"", unread, unread}, {unread, unread, unread}, {"", "allkeys-lru", "allkeys-lru"}, {unread, "allkeys-lfu", "allkeys-lfu"},
	} {
		need.Equal(t, "worse of "+c[0]+" and "+c[1], worse(c[0], c[1]), c[2])
		need.Equal(t, "worse of "+c[1]+" and "+c[0], worse(c[1], c[0]), c[2])
	}
}
