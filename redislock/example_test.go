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

	report := locks.Mutex("locks:report")
	err = report.Do(ctx, func(ctx context.Context) error { // ctx ends if the lock is lost
		_, err := redislock.Eval(ctx, tier.HoldFrom(ctx, report), `return redis.call('SET', KEYS[1], ARGV[1])`, []string{"reports:last"}, "today")
		return err
	})
	if err != nil {
		log.Print(err)
	}
}
