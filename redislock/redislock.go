package redislock

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/tierlock/tierlock/tier"
)

// New returns a registry of locks in the Redis of client: a [redis.Client], with or without Sentinels, or a [redis.ClusterClient]. It
// blocks until Redis has answered or ctx ends: give ctx a deadline.
//
// A wrong option, or a refusal by Redis of what every lock needs, is an error at once. If Redis cannot be reached, the error wraps the
// cause of ctx and names the address. After an error nothing is left. After New has returned, the end of ctx has no effect.
//
// Close the registry first and then the client. If the client is closed first, all locks are lost at once.
//
// Caution: after a start or a failover of Redis no new lock is granted for one lease TTL, 15 s by default. Locks that the new primary
// knows stay held; the others are lost. Without min-replicas-to-write two processes can hold one lock after a failover. "Failover" in the
// documentation of this package has the details, and [WithNewServer] is for tests.
func New(ctx context.Context, client redis.UniversalClient, opts ...tier.RegistryOption) (*tier.Registry, error) {
	o, share, err := newOptions(opts)
	if err != nil {
		return nil, fmt.Errorf("redislock: %w", err)
	}
	if err := checkClient(client); err != nil { // before there is anything to close
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
		return fmt.Errorf("redislock: nil client, or one of type %T; want a *redis.Client or a *redis.ClusterClient", client)
	}
	return nil
}
