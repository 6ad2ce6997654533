package store

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/tierlock/tierlock/internal/test/redisserver"
	"github.com/tierlock/tierlock/redislock"
	"github.com/tierlock/tierlock/stress/internal/trace"
	"github.com/tierlock/tierlock/tier"
)

// Redis is the store of package redislock.
var Redis = &Store{
	Name:  "redis",
	Title: "Redis",
	Locks: locksOf(openRedis, []Sort{Mutex, ReadersWriter, Semaphore},
		map[string]Dial{"rueidislock": dialRueidislock, "rueidislock-local": local(dialRueidislock), "redsync": dialRedsync,
			"redislock": dialBsm}),
	Baselines:    []string{"rueidislock", "rueidislock-local", "redsync", "redislock"},
	Start:        startRedis,
	URL:          func(servers []string) string { return "redis://" + strings.Join(servers, ",") },
	Observe:      observeRedis,
	HastyTimeout: hastyTimeout,
	GracePeriod:  true,
	Model:        trace.Rules{OwnTTL: true, Forgets: true},
}

const noRedis = none("Redis")

// startRedis starts servers that lose no data by a kill -9. They sync their log every second, which is Redis's default. A primary
// accepts no writes that a majority of the servers might miss.
func startRedis(ctx context.Context, shape Shape) (*Cluster, error) {
	ensemble, err := redisserver.StartEnsemble(ctx, shape.Members, redisserver.Config{MinReplicas: shape.Members / 2, MaxLag: 1})
	if err != nil {
		return nil, errors.Join(noRedis, err)
	}
	// These servers are new. If the primary were not recorded, redislock would wait for a grace period.
	if err := trust(ctx, ensemble.Members[0].Addr()); err != nil {
		return nil, errors.Join(noRedis, err, ensemble.Stop())
	}
	return &Cluster{Ensemble: ensemble.Ensemble, Isolate: ensemble.Isolate, Heal: ensemble.Heal, Replace: ensemble.Failover}, nil
}

// trust lets a first process acquire a lock at a primary, so that redislock records the primary. The lease of that process is shorter
// than any other.
func trust(ctx context.Context, addr string) error {
	client := connectRedis([]string{addr})
	defer client.Close()
	locks, err := redislock.New(ctx, client, redislock.WithNewServer(), tier.WithLeaseTTL(time.Second))
	if err != nil {
		return err
	}
	defer locks.Close()
	return locks.Mutex("first").Do(ctx, func(context.Context) error { return nil })
}

// connectRedis returns a client without waiting for its connection. If there are several servers, the client finds the primary.
func connectRedis(servers []string) *redis.Client {
	logging.Disable() // this is a setting for all clients in the process
	options := &redis.Options{Addr: servers[0]}
	if len(servers) > 1 {
		options.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) { return redisserver.Dial(ctx, servers) }
	}
	return redis.NewClient(options)
}
