package store

import (
	"context"
	"errors"
	"time"

	bsm "github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/tierlock/tierlock/redislock"
	"github.com/tierlock/tierlock/tier"
)

// redisTier is package tier's lock and the client that it is over.
type redisTier struct {
	tiered
	client *redis.Client
}

// dialRedisTier dials package tier's locks of one sort.
func dialRedisTier(sort Sort) Dial {
	return func(_ context.Context, o Options) (Locker, error) {
		client := connectRedis(o.Servers)
		registry, err := newRedisRegistry(client, o)
		if err != nil {
			return nil, errors.Join(err, client.Close())
		}
		return redisTier{tiered{registry, sort, o.Permits}, client}, nil
	}
}

func newRedisRegistry(client *redis.Client, o Options) (*tier.Registry, error) {
	var options []redislock.Option
	if o.SessionTimeout != 0 {
		options = append(options, redislock.WithLeaseTTL(o.SessionTimeout))
	}
	for _, policy := range o.policy() {
		options = append(options, policy)
	}
	return redislock.New(client, options...)
}

func (l redisTier) Close() error { return errors.Join(l.tiered.Close(), l.client.Close()) }

// rueidisLocker is rueidislock as its README has it for one server: one per process.
type rueidisLocker struct{ rueidislock.Locker }

func dialRueidislock(_ context.Context, o Options) (Locker, error) {
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: o.Servers},
		KeyMajority:    1,
		NoLoopTracking: true,
	})
	if err != nil {
		return nil, err
	}
	return rueidisLocker{locker}, nil
}

func (l rueidisLocker) Close() error {
	l.Locker.Close()
	return nil
}

func (l rueidisLocker) Contender(path string) (Contender, error) {
	return func(ctx context.Context, _ int64) (Hold, error) {
		// The context that ends the wait would end the hold, too.
		asking, giveUp := context.WithCancel(context.WithoutCancel(ctx))
		stop := context.AfterFunc(ctx, giveUp)
		held, release, err := l.WithContext(asking, path)
		if err != nil {
			giveUp()
			return nil, err
		}
		if !stop() {
			release()
			return nil, ctx.Err()
		}
		return rueidisHold{held, release, giveUp}, nil
	}, nil
}

type rueidisHold struct {
	held    context.Context
	release context.CancelFunc
	giveUp  context.CancelFunc
}

func (rueidisHold) Token() int64            { return 0 }
func (h rueidisHold) Lost() <-chan struct{} { return h.held.Done() }

func (h rueidisHold) Err() error {
	if h.held.Err() != nil {
		return ErrLost
	}
	return nil
}

// Release returns when the key is gone.
func (h rueidisHold) Release() error {
	h.release()
	h.giveUp()
	return nil
}

// redsyncLocker is redsync on one server as its README has it: it asks 32 times, with
// pauses of 50 to 250 ms, and fails.
type redsyncLocker struct {
	*redsync.Redsync
	client *redis.Client
}

func dialRedsync(_ context.Context, o Options) (Locker, error) {
	client := connectRedis(o.Servers)
	return redsyncLocker{redsync.New(goredis.NewPool(client)), client}, nil
}

func (l redsyncLocker) Close() error { return l.client.Close() }

func (l redsyncLocker) Contender(path string) (Contender, error) {
	mutex := l.NewMutex(path)
	return func(ctx context.Context, _ int64) (Hold, error) {
		// A command that was sent is waited for, whatever becomes of ctx: nothing is left.
		if err := mutex.LockContext(ctx); err != nil {
			return nil, err
		}
		return redsyncHold{mutex}, nil
	}, nil
}

type redsyncHold struct{ mutex *redsync.Mutex }

func (redsyncHold) Token() int64          { return 0 }
func (redsyncHold) Lost() <-chan struct{} { return nil }
func (redsyncHold) Err() error            { return nil }

func (h redsyncHold) Release() error {
	_, err := h.mutex.Unlock()
	return err
}

// bsmLocker is bsm's redislock with the retries of its examples, without their limit.
type bsmLocker struct {
	*bsm.Client
	client *redis.Client
}

const (
	bsmRetry = 100 * time.Millisecond
	bsmTTL   = 15 * time.Second // what tier's lease is by default; nobody refreshes it
)

func dialBsm(_ context.Context, o Options) (Locker, error) {
	client := connectRedis(o.Servers)
	return bsmLocker{bsm.New(client), client}, nil
}

func (l bsmLocker) Close() error { return l.client.Close() }

func (l bsmLocker) Contender(path string) (Contender, error) {
	return func(ctx context.Context, _ int64) (Hold, error) {
		lock, err := l.Obtain(ctx, path, bsmTTL, &bsm.Options{RetryStrategy: bsm.LinearBackoff(bsmRetry)})
		if err != nil {
			return nil, err
		}
		return bsmHold{lock}, nil
	}, nil
}

type bsmHold struct{ lock *bsm.Lock }

func (bsmHold) Token() int64          { return 0 }
func (bsmHold) Lost() <-chan struct{} { return nil }
func (bsmHold) Err() error            { return nil }
func (h bsmHold) Release() error      { return h.lock.Release(context.Background()) }
