package store

import (
	"context"
	"time"

	bsm "github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/tierlock/tierlock/redislock"
	"github.com/tierlock/tierlock/tier"
)

func openRedis(ctx context.Context, o Options) (*tier.Registry, func() error, error) {
	client := connectRedis(o.Servers)
	locks, err := redislock.New(ctx, client, o.registry()...)
	return opened(locks, err, client.Close)
}

// dialRueidislock uses rueidislock as its README does for one server. Each process has one locker.
func dialRueidislock(_ context.Context, o Options) (Locker, error) {
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: o.Servers},
		KeyMajority:    1,
		NoLoopTracking: true,
	})
	if err != nil {
		return nil, err
	}
	contender := func(path string) Contender {
		return func(ctx context.Context, _ int64) (Hold, error) {
			// A context that ends the wait would also end the hold. Therefore the hold gets a context that ignores the cancellation of ctx.
			asking, giveUp := context.WithCancel(context.WithoutCancel(ctx))
			stop := context.AfterFunc(ctx, giveUp)
			held, release, err := locker.WithContext(asking, path)
			if err != nil {
				giveUp()
				return nil, err
			}
			if !stop() {
				release()
				return nil, ctx.Err()
			}
			// The function release returns when the key is deleted.
			return rueidisHold{plain(func() error { release(); giveUp(); return nil }), held}, nil
		}
	}
	return peer{contender, func() error { locker.Close(); return nil }}, nil
}

type rueidisHold struct {
	plain
	held context.Context
}

func (h rueidisHold) Lost() <-chan struct{} { return h.held.Done() }

func (h rueidisHold) Err() error {
	if h.held.Err() != nil {
		return ErrLost
	}
	return nil
}

// dialRedsync uses redsync on one server, as in its README. redsync tries 32 times, with pauses of 50 to 250 ms, and then fails.
func dialRedsync(_ context.Context, o Options) (Locker, error) {
	client := connectRedis(o.Servers)
	locks := redsync.New(goredis.NewPool(client))
	contender := func(path string) Contender {
		mutex := locks.NewMutex(path)
		return func(ctx context.Context, _ int64) (Hold, error) {
			// If ctx ends, redsync still waits for the answer to a command that it has sent. Therefore no key is left behind.
			if err := mutex.LockContext(ctx); err != nil {
				return nil, err
			}
			return plain(func() error {
				_, err := mutex.Unlock()
				return err
			}), nil
		}
	}
	return peer{contender, client.Close}, nil
}

const (
	bsmRetry = 100 * time.Millisecond
	bsmTTL   = 15 * time.Second // tier's default lease; nothing renews this one
)

// dialBsm uses redislock of bsm as in its examples, but without their limit on the number of retries.
func dialBsm(_ context.Context, o Options) (Locker, error) {
	client := connectRedis(o.Servers)
	locks := bsm.New(client)
	contender := func(path string) Contender {
		return func(ctx context.Context, _ int64) (Hold, error) {
			lock, err := locks.Obtain(ctx, path, bsmTTL, &bsm.Options{RetryStrategy: bsm.LinearBackoff(bsmRetry)})
			if err != nil {
				return nil, err
			}
			return plain(func() error { return lock.Release(context.Background()) }), nil
		}
	}
	return peer{contender, client.Close}, nil
}
