package redislock_test

import (
	"context"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlock/tierlock/redislock"
	"github.com/tierlock/tierlock/tier"
)

func Example() {
	client := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName:    "primary",
		SentinelAddrs: []string{"redis1:26379", "redis2:26379", "redis3:26379"},
	})
	defer client.Close()
	ctx := context.Background()
	locks, err := redislock.New(ctx, client, tier.WithLabel("reports"), tier.WithLinger(time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	hold, err := locks.Mutex("locks:report").Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Release()
	ctx = hold.Context(ctx) // ends if the lock is lost
	if _, err := redislock.Eval(ctx, hold, `return redis.call('SET', KEYS[1], ARGV[1])`, []string{"reports:last"}, "today"); err != nil {
		log.Print(err)
	}
}
