package redislock

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/tierlock/tierlock/tier"
)

// New returns a registry of locks in Redis. The client is a [redis.Client], with or without Sentinels, or a [redis.ClusterClient]. New
// blocks until Redis has answered or ctx ends: give ctx a deadline.
//
// If an option is wrong, or Redis refuses a request that every lock needs, New fails at once. If Redis cannot be reached, the error wraps
// the cause of ctx and names the address. If New returns an error, it leaves no data in Redis. The end of ctx has no effect after New has
// returned.
//
// Close the registry before the client. If the client is closed first, all locks are lost at once.
//
// Caution: after a start or a failover, Redis grants no new lock for one lease TTL, 15 s by default. With min-replicas-to-write this time
// is longer, by min-replicas-max-lag and 2 s. Locks that the new primary knows stay held. All other locks are lost. Without
// min-replicas-to-write, two processes can hold the same lock after a failover. "Failover" in the documentation of this package has the
// details. In tests, use [WithNewServer].
func New(ctx context.Context, client redis.UniversalClient, opts ...tier.RegistryOption) (*tier.Registry, error) {
	o, share, err := newOptions(opts)
	if err != nil {
		return nil, fmt.Errorf("redislock: %w", err)
	}
	if err := checkClient(client); err != nil { // before open, so that nothing has to be closed
		return nil, err
	}
	t := open(client, o).tier
	if !o.Lazy {
		err = t.Ready(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("redislock: %w", err)
	}
	return tier.New(t, share...), nil
}

func checkClient(client redis.UniversalClient) error {
	single, _ := client.(*redis.Client)
	cluster, _ := client.(*redis.ClusterClient)
	if single == nil && cluster == nil {
		return fmt.Errorf("redislock: the client is nil or of type %T; want a *redis.Client or a *redis.ClusterClient", client)
	}
	return nil
}
